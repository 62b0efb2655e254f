-- name: lock_invokers
-- $1 parents. Whoever ends a child of theirs, or parks or ends one of them, does it
-- one after the other: two ends that do not see each other would both leave the
-- waking to the other. A run without live children has no row.
SELECT 1 FROM {schema}.invokers WHERE parent = ANY ($1::uuid[]) ORDER BY parent FOR UPDATE

-- name: open_invokers
-- $1 parents: locks their rows, or makes them.
INSERT INTO {schema}.invokers (parent, live) SELECT p, 0 FROM unnest($1::uuid[]) p ORDER BY p
ON CONFLICT (parent) DO UPDATE SET live = invokers.live

-- name: save_children
-- $1 parents, $2 names, $3 children or NULL for one that was not started, $4
-- errors of those, $5 whether each is abandoned, $6 ms to keep it, $7 ms that it is
-- waited for; 0 is for ever
WITH u AS MATERIALIZED (
  SELECT u.* FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::boolean[], $6::bigint[], $7::bigint[])
    WITH ORDINALITY u(id, name, child, error, abandon, keep, timeout, ord)
), saved AS (
  INSERT INTO {schema}.steps (run_id, name, ordinal, kind, status, attempts, wake_at, started_at, finished_at, error, child)
  SELECT id, name, nextval({step_ordinal}), 'invoke', CASE WHEN child IS NULL THEN 'failed' ELSE 'waiting' END, 0,
    CASE WHEN child IS NOT NULL AND timeout > 0 THEN {now} + timeout * interval '1 millisecond' END, {now}, {now}, error, child
  FROM (SELECT * FROM u ORDER BY ord) o
  ON CONFLICT (run_id, name) DO UPDATE SET kind = excluded.kind, status = excluded.status, attempts = excluded.attempts,
    wake_at = excluded.wake_at, finished_at = excluded.finished_at, error = excluded.error, output = NULL, child = excluded.child
), counted AS (
  UPDATE {schema}.invokers i SET live = i.live + u.n
  FROM (SELECT id, count(*) AS n FROM u WHERE child IS NOT NULL GROUP BY id) u WHERE i.parent {of_u}
)
INSERT INTO {schema}.invocations (child, parent, name, abandon, keep) SELECT child, id, name, abandon, keep FROM u WHERE child IS NOT NULL

-- name: invoke_depth
-- $1 run, $2 the most that is counted
WITH RECURSIVE up (id, n) AS (
  SELECT parent, 1 FROM {schema}.invocations WHERE child = $1 AND $2::integer > 0
  UNION ALL
  SELECT i.parent, up.n + 1 FROM up JOIN {schema}.invocations i ON i.child = up.id WHERE up.n < $2
)
SELECT count(*) FROM up

-- name: rest_invokers
-- $1 parents that a settle suspended, $2 how many of their children may be live:
-- one that has no more is ready, the others are parked, $3 until the first of their
-- children is late. Their rows are locked.
UPDATE {schema}.waiting w SET
  state = CASE WHEN u.live > u.most THEN 'suspended' ELSE 'ready' END,
  run_at = CASE WHEN u.live <= u.most THEN {now} WHEN NOT u.timed THEN w.run_at ELSE least(w.run_at, (
    SELECT min(s.wake_at) FROM {schema}.steps s WHERE s.run_id {of_u} AND s.kind = 'invoke' AND s.status = 'waiting')) END,
  awaits = CASE WHEN u.live > u.most THEN u.most END
FROM (SELECT p.id, p.most, p.timed, p.ord, coalesce((SELECT i.live FROM {schema}.invokers i WHERE i.parent = p.id), 0) AS live
  FROM unnest($1::uuid[], $2::integer[], $3::boolean[]) WITH ORDINALITY p(id, most, timed, ord)) u
WHERE w.id {of_u}
RETURNING u.ord, w.state = 'ready', w.run_at, w.queue, w.tenant, w.priority

-- name: expire_children
-- $1 parents, whose rows are locked, $2 the error in the record of a live child that
-- is late and cancelled, $3 of one that goes on. Answers those to be cancelled.
WITH gone AS (
  DELETE FROM {schema}.invocations i USING (
    SELECT s.run_id, s.name, s.child FROM unnest($1::uuid[]) u(id) JOIN {schema}.steps s ON s.run_id {of_u}
    WHERE s.kind = 'invoke' AND s.status = 'waiting' AND s.wake_at <= {now}
  ) late WHERE i.child = late.child AND i.parent = late.run_id
  RETURNING i.child, i.parent, i.name, i.abandon, i.keep
), told AS (
  UPDATE {schema}.steps s SET status = 'failed', finished_at = {now}, error = CASE WHEN u.abandon THEN $3::text ELSE $2::text END
  FROM (SELECT parent AS id, g.* FROM gone g) u
  WHERE s.run_id {of_u} AND s.name = u.name AND s.child = u.child AND s.status = 'waiting'
), counted AS (
  UPDATE {schema}.invokers i SET live = i.live - u.n
  FROM (SELECT parent AS id, count(*) AS n FROM gone GROUP BY parent) u WHERE i.parent {of_u}
)
SELECT child, parent, keep FROM gone WHERE NOT abandon ORDER BY child

-- name: tell_parents
-- $1 runs that have ended, $2 states, $3 the error of one that ended so without
-- words of its own. The rows of who invoked them are locked.
WITH gone AS (
  DELETE FROM {schema}.invocations i USING unnest($1::uuid[]) u(id) JOIN {schema}.finished f ON f.id {of_u}
  WHERE i.child {of_u}
  RETURNING i.child, i.parent, i.name, f.state, f.output, CASE
    WHEN f.state <> 'cancelled' OR f.error LIKE '{"code":"X_JOB_CANCELLED"%' THEN f.error END AS error
), told AS (
  UPDATE {schema}.steps s SET finished_at = {now},
    status = CASE WHEN u.state = 'done' THEN 'completed' ELSE 'failed' END,
    output = CASE WHEN u.state = 'done' THEN u.output END,
    error = CASE WHEN u.state <> 'done' THEN coalesce(u.error, ($3::text[])[array_position($2::text[], u.state)]) END
  FROM (SELECT parent AS id, g.* FROM gone g) u
  WHERE s.run_id {of_u} AND s.name = u.name AND s.child = u.child AND s.status = 'waiting'
)
UPDATE {schema}.invokers i SET live = i.live - u.n
FROM (SELECT parent AS id, count(*) AS n FROM gone GROUP BY parent) u WHERE i.parent {of_u}

-- name: wake_parents
-- $1 parents: those that are parked for no more live children than they have are
-- ready.
WITH woken AS (
  UPDATE {schema}.waiting w SET state = 'ready', run_at = {now}, awaits = NULL
  FROM (SELECT p.id, coalesce((SELECT i.live FROM {schema}.invokers i WHERE i.parent = p.id), 0) AS live FROM unnest($1::uuid[]) p(id)) u
  WHERE w.id {of_u} AND w.state = 'suspended' AND w.awaits >= u.live
  RETURNING w.queue, w.tenant, w.priority, w.run_at
), cleaned AS (
  DELETE FROM {schema}.invokers i USING unnest($1::uuid[]) u(id) WHERE i.parent {of_u} AND i.live <= 0
)
SELECT queue, tenant, priority, run_at FROM woken

-- name: leave_children
-- $1 parents that have ended, $2 the error in the record of a child that is
-- cancelled for it, $3 of one that goes on. Answers their live children.
WITH gone AS (
  DELETE FROM {schema}.invocations i USING unnest($1::uuid[]) u(id) WHERE i.parent {of_u}
  RETURNING i.child, i.parent, i.name, i.abandon, i.keep
), told AS (
  UPDATE {schema}.steps s SET status = 'retrying', finished_at = {now}, error = CASE WHEN u.abandon THEN $3::text ELSE $2::text END
  FROM (SELECT parent AS id, g.* FROM gone g) u
  WHERE s.run_id {of_u} AND s.name = u.name AND s.child = u.child AND s.status = 'waiting'
), cleaned AS (
  DELETE FROM {schema}.invokers i USING unnest($1::uuid[]) u(id) WHERE i.parent {of_u}
)
SELECT child, parent, keep FROM gone WHERE NOT abandon ORDER BY child
