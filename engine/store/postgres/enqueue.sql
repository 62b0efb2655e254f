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
-- $12 by whom, $13 traceparents, $14 keys that are texts of ids, as ids, $15 whether
-- the keys are taken already, $16 gates or NULL. A key that is the run's own id is ''. Inserts
-- what has no duplicate and answers that. Keys are taken in their order, so that
-- two batches cannot wait for each other.
WITH u AS MATERIALIZED (
  SELECT u.*, coalesce(u.at, {now} + u.delay * interval '1 millisecond') AS run_at
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::smallint[], $8::integer[],
    $9::timestamptz[], $10::bigint[], $11::uuid[], $12::text[], $13::text[], $14::uuid[], $16::text[]) WITH ORDINALITY
    u(id, job, queue, tenant, key, input, priority, max_attempts, at, delay, parent, enqueued_by, traceparent, alien, gate, ord)
), k AS (
  INSERT INTO {schema}.live_keys (job, tenant, key, run_id, alien)
  SELECT u.job, u.tenant, u.key, u.id, u.alien FROM u WHERE u.key <> '' AND NOT $15
  ORDER BY u.job COLLATE "C", u.tenant COLLATE "C", u.key COLLATE "C", u.ord
  ON CONFLICT DO NOTHING RETURNING run_id
)
INSERT INTO {schema}.waiting (id, job, queue, tenant, key, state, priority, max_attempts, run_at, created_at,
  parent, enqueued_by, traceparent, input, gate)
SELECT u.id, u.job, u.queue, u.tenant, u.key, CASE WHEN u.run_at <= {now} THEN 'ready' ELSE 'delayed' END,
  u.priority, u.max_attempts, u.run_at, {now}, u.parent, u.enqueued_by, u.traceparent, u.input, u.gate
FROM u WHERE coalesce(u.key, '') = '' OR $15 OR u.id IN (SELECT k.run_id FROM k)
ON CONFLICT DO NOTHING
RETURNING id, state, run_at <= {now} + interval '1 second' AS soon

-- name: enqueue_for
-- $1 worker, $2 ids, $3 jobs, $4 queues, $5 tenants, $6 keys (NULL, or '' for their
-- own ids), $7 inputs, $8 priorities, $9 attempts, $10 parents, $11 by whom, $12
-- traceparents. New runs, due now and under no key of others: claimed by the worker
-- where a claim would find nothing before them, else to wait. The lock on the
-- worker's row is that of a claim.
WITH u AS MATERIALIZED (
  SELECT u.* FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::smallint[], $9::integer[],
    $10::uuid[], $11::text[], $12::text[]) u(id, job, queue, tenant, key, input, priority, max_attempts, parent, enqueued_by, traceparent)
), alive AS (
  SELECT 1 FROM {schema}.workers WHERE id = $1 AND expires_at > {now} FOR KEY SHARE
), idle AS MATERIALIZED (
  SELECT q.queue FROM (SELECT DISTINCT queue FROM u) q
  WHERE EXISTS (SELECT FROM alive)
    AND NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.paused_at IS NOT NULL AND (p.kind <> 'queue' OR p.name = q.queue))
    AND (SELECT 1 FROM {schema}.waiting w WHERE w.queue = q.queue AND w.state = 'ready' LIMIT 1) IS NULL
    AND (SELECT 1 FROM {schema}.waiting w WHERE w.queue = q.queue AND w.state IN ('delayed', 'suspended') AND w.run_at <= {now} LIMIT 1) IS NULL
), begun AS (
  INSERT INTO {schema}.running (id, job, queue, tenant, key, priority, attempt, max_attempts, claims, orphans,
    run_at, created_at, started_at, claimed_at, worker, parent, enqueued_by, traceparent, input)
  SELECT id, job, queue, tenant, key, priority, 1, max_attempts, 1, 0, {now}, {now}, {now}, {now}, $1, parent, enqueued_by, traceparent, input
  FROM u WHERE u.queue IN (SELECT queue FROM idle)
  RETURNING id
), resting AS (
  INSERT INTO {schema}.waiting (id, job, queue, tenant, key, state, priority, max_attempts, run_at, created_at,
    parent, enqueued_by, traceparent, input)
  SELECT id, job, queue, tenant, key, 'ready', priority, max_attempts, {now}, {now}, parent, enqueued_by, traceparent, input
  FROM u WHERE u.queue NOT IN (SELECT queue FROM idle)
  RETURNING id
)
SELECT id, true, {now} FROM begun UNION ALL SELECT id, false, {now} FROM resting

-- name: insert_inputs
-- $1 ids, $2 inputs: of runs that were inserted
INSERT INTO {schema}.inputs (run_id, input)
SELECT u.id, u.input FROM unnest($1::uuid[], $2::bytea[]) u(id, input)
JOIN {schema}.waiting w ON w.id {of_u} AND w.claims >= 0
ON CONFLICT DO NOTHING

-- name: check_new
-- $1 ids, $2 the lowest, $3 the highest of them (so that only the partitions in
-- between are opened); $4 ids, $5 jobs, $6 tenants, $7 keys of those in
-- live_keys. Fails, and the transaction with it, if an id names a run that began or
-- ended, if a key was taken for a row that was then refused, or if a key that is
-- the text of an id is also the key of the run of that id. Read after the insert,
-- it cannot miss a run on its way from one table to the next: the insert waited
-- for it. (Two that take such a key at one instant, one of them by its own id,
-- miss each other. That needs someone to know an id before there is a run of it,
-- and to use it as the key of another run of that job.)
SELECT CASE
  WHEN EXISTS (SELECT FROM {schema}.finished f WHERE f.id = ANY ($1::uuid[]) AND f.id BETWEEN $2 AND $3) THEN {schema}.refuse()
  WHEN EXISTS (SELECT FROM {schema}.running r WHERE r.id = ANY ($1::uuid[])) THEN {schema}.refuse()
  WHEN EXISTS (
    SELECT FROM unnest($4::uuid[], $5::text[], $6::text[], $7::text[]) u(id, job, tenant, key)
    JOIN {schema}.live_keys k ON {key_of_u} AND k.run_id = u.id
    LEFT JOIN {schema}.waiting w ON w.id {of_u}
    WHERE (w.job, w.tenant, w.key) IS DISTINCT FROM (u.job, u.tenant, u.key)
      OR EXISTS (SELECT FROM {schema}.waiting o WHERE o.id = k.alien AND o.key = '' AND o.job = k.job AND o.tenant = k.tenant OFFSET 0)
      OR EXISTS (SELECT FROM {schema}.running o WHERE o.id = k.alien AND o.key = '' AND o.job = k.job AND o.tenant = k.tenant OFFSET 0))
    THEN {schema}.refuse()
  WHEN EXISTS (
    SELECT FROM {schema}.live_keys k JOIN {schema}.waiting w ON w.id = ANY (ARRAY[k.alien])
    WHERE k.alien = ANY ($1::uuid[]) AND w.key = '' AND w.job = k.job AND w.tenant = k.tenant) THEN {schema}.refuse()
  END

-- name: take_keys
-- $1 ids, $2 jobs, $3 tenants, $4 keys, none twice, $5 those that are texts of ids,
-- as ids: who holds each now, and goes on
-- to hold it until this transaction ends. For when looking it up, without the
-- write that this is, was overtaken time and again.
INSERT INTO {schema}.live_keys (job, tenant, key, run_id, alien)
SELECT u.job, u.tenant, u.key, u.id, u.alien
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[]) u(id, job, tenant, key, alien)
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

-- name: find_id_holders
-- $1 ids, $2 jobs, $3 tenants, $4 keys that are texts of ids, as ids, NULL for one
-- that is its own: the live run that holds the key by way of an id, in order.
SELECT u.ord, k.run_id, coalesce((SELECT w.state FROM {schema}.waiting w WHERE w.id = k.run_id), 'running') AS state
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[]) WITH ORDINALITY u(id, job, tenant, alien, ord)
JOIN {schema}.live_keys k ON k.alien {of_u} AND k.job = u.job AND k.tenant = u.tenant AND k.run_id <> u.id
WHERE u.alien IS NULL
UNION ALL
SELECT u.ord, w.id, w.state
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[]) WITH ORDINALITY u(id, job, tenant, alien, ord)
JOIN {schema}.waiting w ON w.id = ANY (ARRAY[u.alien]) AND w.key = '' AND w.job = u.job AND w.tenant = u.tenant
UNION ALL
SELECT u.ord, r.id, 'running'
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[]) WITH ORDINALITY u(id, job, tenant, alien, ord)
JOIN {schema}.running r ON r.id = ANY (ARRAY[u.alien]) AND r.key = '' AND r.job = u.job AND r.tenant = u.tenant

-- name: find_holders
-- $1 jobs, $2 tenants, $3 keys: the live run that holds each, in order
SELECT u.ord, k.run_id,
  coalesce((SELECT w.state FROM {schema}.waiting w WHERE w.id = k.run_id), 'running') AS state
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY u(job, tenant, key, ord)
JOIN {schema}.live_keys k ON {key_of_u}

-- name: find_live
-- $1 job, $2 tenant, $3 key, $4 the key if it is the text of an id
SELECT run_id FROM {schema}.live_keys WHERE job = $1 AND tenant = $2 AND key = $3
UNION ALL
SELECT id FROM {schema}.waiting WHERE id = $4 AND key = '' AND job = $1 AND tenant = $2
UNION ALL
SELECT id FROM {schema}.running WHERE id = $4 AND key = '' AND job = $1 AND tenant = $2

-- name: notify
-- $1 channel, $2 queues. Delivered when the transaction commits.
SELECT pg_notify($1, queue) FROM unnest($2::text[]) queue
