-- name: insert_worker
-- $1 id, $2 host, $3 pid, $4 queues, $5 lease in ms
INSERT INTO {schema}.workers (id, host, pid, queues, started_at, renewed_at, expires_at)
VALUES ($1, $2, $3, $4, {now}, {now}, {now} + $5::bigint * interval '1 millisecond')
ON CONFLICT DO NOTHING

-- name: lapse_workers
-- Every lease ends now, for a worker that has proved to be alone.
UPDATE {schema}.workers SET expires_at = {now} WHERE expires_at > {now}

-- name: renew
-- $1 id, $2 lease in ms, $3 ids, $4 claims: of the runs that it holds. A lease
-- that has lapsed stays so. Answers whether it is alive, and a row per run that
-- is not held any more, or each if it is not alive.
WITH renewed AS (
  UPDATE {schema}.workers SET renewed_at = {now}, expires_at = {now} + $2::bigint * interval '1 millisecond'
  WHERE id = $1 AND expires_at > {now} RETURNING 1
), lost AS (
  SELECT u.ord, CASE WHEN EXISTS (
      SELECT FROM {schema}.attempts a
      WHERE a.run_id = u.id AND a.claim = u.claim AND a.worker = $1 AND a.outcome = 'unwinding' AND NOT a.reported OFFSET 0) THEN 'cancelled'
    WHEN r.id IS NOT NULL THEN 'running' ELSE coalesce(
      (SELECT w.state FROM {schema}.waiting w WHERE w.id = u.id), (SELECT f.state FROM {schema}.finished f WHERE f.id = u.id)) END AS state
  FROM unnest($3::uuid[], $4::bigint[]) WITH ORDINALITY u(id, claim, ord)
  LEFT JOIN {schema}.running r ON r.id {of_u}
  WHERE NOT EXISTS (SELECT FROM renewed) OR r.worker IS DISTINCT FROM $1 OR r.claims IS DISTINCT FROM u.claim
)
SELECT EXISTS (SELECT FROM renewed) AS alive, lost.ord, lost.state FROM (VALUES (1)) one LEFT JOIN lost ON true

-- name: set_queues
UPDATE {schema}.workers SET queues = $2 WHERE id = $1

-- name: held_progress
-- $1 worker, $2 ids, $3 claims, $4 progress
UPDATE {schema}.running r SET progress = u.progress
FROM unnest($2::uuid[], $3::bigint[], $4::text[]) u(id, claim, progress)
WHERE r.id {of_u} AND r.worker = $1 AND r.claims = u.claim

-- name: list_workers
SELECT id, host, pid, queues, started_at, renewed_at, expires_at, coalesce(r.n, 0)
FROM {schema}.workers LEFT JOIN (SELECT worker, count(*) AS n FROM {schema}.running GROUP BY worker) r ON r.worker = id
ORDER BY id

-- name: any_lapsed
SELECT EXISTS (SELECT FROM {schema}.workers WHERE expires_at <= {now})

-- name: lock_lapsed
-- Locked, so that none is claiming meanwhile; who is, is taken next time.
SELECT id FROM {schema}.workers WHERE expires_at <= {now} ORDER BY expires_at, id FOR UPDATE SKIP LOCKED

-- name: lock_worker
SELECT id FROM {schema}.workers WHERE id = $1 FOR UPDATE

-- name: delete_workers
DELETE FROM {schema}.workers w WHERE w.id = ANY ($1::text[]) AND NOT EXISTS (SELECT FROM {schema}.running r WHERE r.worker = w.id)

-- name: runs_of
-- $1 worker: the runs it holds, locked, after whoever is ending one
SELECT {running_run} FROM {schema}.running r WHERE r.worker = $1 ORDER BY r.id FOR UPDATE

-- name: runs_of_lapsed
-- $1 workers, $2 limit: the runs they hold that nobody is about to end, locked
SELECT {running_run} FROM {schema}.running r WHERE r.worker = ANY ($1::text[]) ORDER BY r.id LIMIT $2 FOR UPDATE SKIP LOCKED
