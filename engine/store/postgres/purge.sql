-- name: purge
-- $1 limit: the runs that expired first, with all that hangs on them
WITH gone AS (
  DELETE FROM {schema}.finished f WHERE f.id = ANY (ARRAY(
    SELECT id FROM {schema}.finished WHERE expires_at <= {now} ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))
  RETURNING f.id, f.queue, f.state
), steps AS (
  DELETE FROM {schema}.steps s USING gone u WHERE s.run_id {of_u}
), attempts AS (
  DELETE FROM {schema}.attempts a USING gone u WHERE a.run_id {of_u}
), inputs AS (
  DELETE FROM {schema}.inputs i USING gone u WHERE i.run_id {of_u}
), logs AS (
  DELETE FROM {schema}.logs l USING gone u WHERE l.run_id {of_u}
), counted AS (
  INSERT INTO {schema}.tally (queue, state, n) SELECT queue, state, -count(*) FROM gone GROUP BY queue, state
)
SELECT count(*) FROM gone

-- name: fold_tally
-- Only rows that no one else is folding.
WITH old AS (
  DELETE FROM {schema}.tally t USING (SELECT ctid AS tid FROM {schema}.tally FOR UPDATE SKIP LOCKED) l WHERE t.ctid = l.tid RETURNING t.*
)
INSERT INTO {schema}.tally (queue, state, n) SELECT queue, state, sum(n) FROM old GROUP BY queue, state HAVING sum(n) <> 0

-- name: tally_size
SELECT count(*) FROM {schema}.tally

-- name: extend
-- makes the partitions of the weeks to come
SELECT {schema}.extend(4)

-- name: drop_expired
SELECT {schema}.drop_expired({now})
