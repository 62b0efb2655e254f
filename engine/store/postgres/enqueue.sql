-- define: of_u
-- Equality with u.id, said so that the planner can only look each row of u up:
-- plans are made once and kept, and one made while a table was empty would
-- otherwise read all of it for each of the rows.
= ANY (ARRAY[u.id])

-- define: key_of_u
k.job = ANY (ARRAY[u.job]) AND k.tenant = u.tenant AND k.key = u.key

-- name: enqueue
-- $1 ids, $2 jobs, $3 queues, $4 tenants, $5 keys, $6 inputs (NULL: apart),
-- $7 priorities, $8 attempts, $9 times or NULL, $10 delays in ms, $11 parents,
-- $12 by whom, $13 traceparents, $14 whether the keys are taken already. Inserts
-- what has no duplicate and answers that. Keys are taken in their order, so that
-- two batches cannot wait for each other.
WITH u AS MATERIALIZED (
  SELECT u.*, coalesce(u.at, {now} + u.delay * interval '1 millisecond') AS run_at
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::smallint[], $8::integer[],
    $9::timestamptz[], $10::bigint[], $11::uuid[], $12::text[], $13::text[]) WITH ORDINALITY
    u(id, job, queue, tenant, key, input, priority, max_attempts, at, delay, parent, enqueued_by, traceparent, ord)
), k AS (
  INSERT INTO {schema}.live_keys (job, tenant, key, run_id)
  SELECT u.job, u.tenant, u.key, u.id FROM u WHERE u.key IS NOT NULL AND NOT $14
  ORDER BY u.job COLLATE "C", u.tenant COLLATE "C", u.key COLLATE "C", u.ord
  ON CONFLICT DO NOTHING RETURNING run_id
)
INSERT INTO {schema}.waiting (id, job, queue, tenant, key, state, priority, max_attempts, run_at, created_at,
  parent, enqueued_by, traceparent, input)
SELECT u.id, u.job, u.queue, u.tenant, u.key, CASE WHEN u.run_at <= {now} THEN 'ready' ELSE 'delayed' END,
  u.priority, u.max_attempts, u.run_at, {now}, u.parent, u.enqueued_by, u.traceparent, u.input
FROM u WHERE u.key IS NULL OR $14 OR u.id IN (SELECT k.run_id FROM k)
ON CONFLICT DO NOTHING
RETURNING id, state, run_at <= {now} + interval '1 second' AS soon

-- name: insert_inputs
-- $1 ids, $2 inputs: of runs that were inserted
INSERT INTO {schema}.inputs (run_id, input)
SELECT u.id, u.input FROM unnest($1::uuid[], $2::bytea[]) u(id, input)
JOIN {schema}.waiting w ON w.id {of_u} AND w.claims >= 0
ON CONFLICT DO NOTHING

-- name: check_new
-- $1 ids, $2 the lowest, $3 the highest of them (so that only the partitions in
-- between are opened); $4 ids, $5 jobs, $6 tenants, $7 keys of those with a key. Fails, and
-- the transaction with it, if an id names a run that began or ended, or if a key
-- was taken for a row that was then refused. Read after the insert, it cannot
-- miss a run on its way from one table to the next: the insert waited for it.
SELECT CASE
  WHEN EXISTS (SELECT FROM {schema}.finished f WHERE f.id = ANY ($1::uuid[]) AND f.id BETWEEN $2 AND $3) THEN {schema}.refuse()
  WHEN EXISTS (SELECT FROM {schema}.running r WHERE r.id = ANY ($1::uuid[])) THEN {schema}.refuse()
  WHEN EXISTS (
    SELECT FROM unnest($4::uuid[], $5::text[], $6::text[], $7::text[]) u(id, job, tenant, key)
    JOIN {schema}.live_keys k ON {key_of_u} AND k.run_id = u.id
    LEFT JOIN {schema}.waiting w ON w.id {of_u}
    WHERE (w.job, w.tenant, w.key) IS DISTINCT FROM (u.job, u.tenant, u.key)) THEN {schema}.refuse()
  END

-- name: take_keys
-- $1 ids, $2 jobs, $3 tenants, $4 keys, none twice: who holds each now, and goes on
-- to hold it until this transaction ends. For when looking it up, without the
-- write that this is, was overtaken time and again.
INSERT INTO {schema}.live_keys (job, tenant, key, run_id)
SELECT u.job, u.tenant, u.key, u.id FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) u(id, job, tenant, key)
ORDER BY u.job COLLATE "C", u.tenant COLLATE "C", u.key COLLATE "C"
ON CONFLICT (job, tenant, key) DO UPDATE SET run_id = live_keys.run_id
RETURNING job, tenant, key, run_id

-- name: find_states
-- $1 ids
SELECT w.id, w.state FROM unnest($1::uuid[]) u(id) JOIN {schema}.waiting w ON w.id {of_u}
UNION ALL
SELECT r.id, 'running' FROM unnest($1::uuid[]) u(id) JOIN {schema}.running r ON r.id {of_u} AND r.claims >= 0
UNION ALL
SELECT f.id, f.state FROM unnest($1::uuid[]) u(id) JOIN {schema}.finished f ON f.id {of_u}

-- name: find_holders
-- $1 jobs, $2 tenants, $3 keys: the live run that holds each, in order
SELECT u.ord, k.run_id,
  coalesce((SELECT w.state FROM {schema}.waiting w WHERE w.id = k.run_id), 'running') AS state
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY u(job, tenant, key, ord)
JOIN {schema}.live_keys k ON {key_of_u}

-- name: find_live
-- $1 job, $2 tenant, $3 key
SELECT run_id FROM {schema}.live_keys WHERE job = $1 AND tenant = $2 AND key = $3

-- name: notify
-- $1 channel, $2 queues. Delivered when the transaction commits.
SELECT pg_notify($1, queue) FROM unnest($2::text[]) queue
