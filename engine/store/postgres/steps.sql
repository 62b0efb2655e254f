-- name: list_steps
-- seq counts the records in the order in which the run first reached them
SELECT name, row_number() OVER (ORDER BY ordinal), kind, status, attempts, wake_at, started_at, finished_at, error, output
FROM {schema}.steps WHERE run_id = $1 ORDER BY ordinal

-- define: upsert_step
-- A record that exists keeps its place and when it began.
ON CONFLICT (run_id, name) DO UPDATE SET
  kind = excluded.kind, status = excluded.status, attempts = excluded.attempts, wake_at = excluded.wake_at,
  finished_at = excluded.finished_at, error = excluded.error, output = excluded.output

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
  SELECT r.id, r.module, u.ord FROM u JOIN {schema}.running r ON r.id = u.id
  WHERE r.worker = u.worker AND r.claims = u.claim
  FOR NO KEY UPDATE OF r
), pin AS (
  UPDATE {schema}.running r SET module = m.module
  FROM (SELECT DISTINCT ON (h.id) h.id, u.module FROM held h JOIN u ON u.ord = h.ord
    WHERE u.module IS NOT NULL ORDER BY h.id, h.ord DESC) m
  WHERE r.id = m.id AND r.module IS DISTINCT FROM m.module
), saved AS (
  INSERT INTO {schema}.steps (run_id, name, ordinal, kind, status, attempts, wake_at, started_at, finished_at, error, output)
  SELECT h.id, u.name, nextval({step_ordinal}), u.kind, u.status, u.attempts,
    coalesce(u.wake_at, {now} + u.sleep * interval '1 millisecond'),
    {now} - u.elapsed * interval '1 millisecond', {now}, u.error, u.output
  FROM held h JOIN u ON u.ord = h.ord ORDER BY u.ord
  {upsert_step}
)
SELECT ord, {now} FROM held

-- name: hold
-- $1 ids, $2 workers, $3 claims: which of them are held, locked until the end of
-- the transaction.
SELECT u.ord FROM unnest($1::uuid[], $2::text[], $3::bigint[]) WITH ORDINALITY u(id, worker, claim, ord)
JOIN {schema}.running r ON r.id = u.id
WHERE r.worker = u.worker AND r.claims = u.claim
FOR NO KEY UPDATE OF r
