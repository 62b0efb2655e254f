-- name: list_steps
-- seq counts the records in the order in which the run first reached them
SELECT name, row_number() OVER (ORDER BY ordinal), kind, status, attempts, wake_at, started_at, finished_at, error, output,
  topic, event_key, place, child
FROM {schema}.steps WHERE run_id = $1 ORDER BY ordinal

-- name: unwinds_of
-- $1 ids: the records which say that these runs are undone
SELECT run_id, output FROM {schema}.steps WHERE run_id = ANY ($1::uuid[]) AND name = 'compensate' AND kind = 'unwind'

-- define: upsert_step
-- A record that exists keeps its place and when it began. A start that comes after
-- the end changes nothing.
ON CONFLICT (run_id, name) DO UPDATE SET
  kind = excluded.kind, status = excluded.status, attempts = excluded.attempts, wake_at = excluded.wake_at,
  finished_at = excluded.finished_at, error = excluded.error, output = excluded.output
WHERE (excluded.status <> 'started' OR steps.status NOT IN ('completed', 'failed'))
  AND (excluded.status <> 'waiting' OR steps.kind <> 'wait' OR steps.status NOT IN ('completed', 'timed-out'))

-- name: save_steps
-- $1 ids, $2 workers, $3 claims, $4 names, $5 kinds, $6 statuses, $7 attempts,
-- $8 sleeps in ms or NULL, $9 wake times or NULL, $10 ms since the body began,
-- $11 errors, $12 outputs, $13 modules or NULL. No run and no name twice.
-- Locking the run's row is the fence: it is read again once the lock is there.
WITH u AS MATERIALIZED (
  SELECT u.* FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::integer[],
    $8::bigint[], $9::timestamptz[], $10::bigint[], $11::text[], $12::bytea[], $13::text[]) WITH ORDINALITY
    u(id, worker, claim, name, kind, status, attempts, sleep, wake_at, elapsed, error, output, module, ord)
), held AS (
  SELECT u.* FROM u JOIN {schema}.running r ON r.id {of_u}
  WHERE r.worker = u.worker AND r.claims = u.claim
  FOR NO KEY UPDATE OF r
), pin AS (
  UPDATE {schema}.running r SET module = u.module
  FROM (SELECT DISTINCT ON (h.id) h.id, h.module FROM held h WHERE h.module IS NOT NULL ORDER BY h.id, h.ord DESC) u
  WHERE r.id {of_u} AND r.module IS DISTINCT FROM u.module
), saved AS (
  INSERT INTO {schema}.steps (run_id, name, ordinal, kind, status, attempts, wake_at, started_at, finished_at, error, output)
  SELECT id, name, nextval({step_ordinal}), kind, status, attempts,
    coalesce(wake_at, {now} + sleep * interval '1 millisecond'),
    {now} - elapsed * interval '1 millisecond', {now}, error, output
  FROM (SELECT * FROM held ORDER BY ord) h
  {upsert_step}
)
SELECT ord, {now} FROM held

-- name: save_new_steps
-- $1 worker, $2 ids, $3 claims, $4 names, $5 ms since the body began, $6 outputs,
-- $7 modules or NULL. Completed steps of which there is no record: most there are.
-- Fails if there is one after all, which costs less than to look. The fence is
-- that of save_steps.
WITH held AS (
  SELECT u.*, u.module IS NOT NULL AND r.module IS DISTINCT FROM u.module AS pins
  FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[], $7::text[]) WITH ORDINALITY
    u(id, claim, name, elapsed, output, module, ord)
  JOIN {schema}.running r ON r.id {of_u}
  WHERE r.worker = $1 AND r.claims = u.claim
  FOR NO KEY UPDATE OF r
), pin AS (
  UPDATE {schema}.running r SET module = u.module
  FROM (SELECT DISTINCT ON (h.id) h.id, h.module FROM held h WHERE h.pins ORDER BY h.id, h.ord DESC) u
  WHERE r.id {of_u}
), saved AS (
  INSERT INTO {schema}.steps (run_id, name, ordinal, kind, status, attempts, started_at, finished_at, output)
  SELECT id, name, nextval({step_ordinal}), 'step', 'completed', 0, {now} - elapsed * interval '1 millisecond', {now}, output
  FROM (SELECT * FROM held ORDER BY ord) h
)
SELECT ord, {now} FROM held

-- name: hold
-- $1 ids, $2 workers, $3 claims: which of them are held, locked until the end of
-- the transaction.
SELECT u.ord FROM unnest($1::uuid[], $2::text[], $3::bigint[]) WITH ORDINALITY u(id, worker, claim, ord)
JOIN {schema}.running r ON r.id {of_u}
WHERE r.worker = u.worker AND r.claims = u.claim
FOR NO KEY UPDATE OF r
