-- name: get_run
SELECT {waiting_run}, coalesce(w.input, (SELECT i.input FROM {schema}.inputs i WHERE i.run_id = w.id)) AS input, NULL::bytea AS output
FROM {schema}.waiting w WHERE w.id = $1
UNION ALL
SELECT {running_run}, coalesce(r.input, (SELECT i.input FROM {schema}.inputs i WHERE i.run_id = r.id)), NULL
FROM {schema}.running r WHERE r.id = $1
UNION ALL
SELECT {finished_run}, coalesce(f.input, (SELECT i.input FROM {schema}.inputs i WHERE i.run_id = f.id)), f.output
FROM {schema}.finished f WHERE f.id = $1

-- name: list_attempts
SELECT claim, attempt, worker, outcome, claimed_at, settled_at, run_at, error, module, steps
FROM {schema}.attempts WHERE run_id = $1 ORDER BY claim

-- name: cancel_run
-- $1 id, $2 error or NULL to keep it, $3 retention in ms, $4 the states that
-- this build knows, $5 whether also if it is running
WITH w AS (
  DELETE FROM {schema}.waiting WHERE id = $1 AND state = ANY ($4::text[]) RETURNING *
), r AS (
  DELETE FROM {schema}.running WHERE id = $1 AND $5::boolean RETURNING *
), ended AS (
  SELECT id, job, queue, tenant, key, coalesce(asked_priority, priority) AS priority, attempt, max_attempts, claims, orphans,
    run_at, created_at, started_at, claimed_at, NULL::text AS worker, module, parent, enqueued_by, traceparent, error, progress, input, gate FROM w
  UNION ALL
  SELECT id, job, queue, tenant, key, priority, attempt, max_attempts, claims, orphans, run_at, created_at, started_at, claimed_at,
    worker, module, parent, enqueued_by, traceparent, error, progress, input, gate FROM r
), moved AS (
  INSERT INTO {schema}.finished (id, job, queue, tenant, key, state, priority, attempt, max_attempts, claims, orphans,
    run_at, created_at, started_at, claimed_at, finished_at, expires_at, worker, module, parent, enqueued_by, traceparent,
    error, progress, input, gate)
  SELECT id, job, queue, tenant, key, 'cancelled', priority, attempt, max_attempts, claims, orphans,
    run_at, created_at, started_at, claimed_at, {now}, CASE WHEN $3::bigint > 0 THEN {now} + $3::bigint * interval '1 millisecond' END,
    worker, module, parent, enqueued_by, traceparent, coalesce($2, error), progress, input, gate
  FROM ended
), counted AS (
  INSERT INTO {schema}.tally (queue, state, n) SELECT queue, 'cancelled', 1 FROM ended
), {forget_keys}
SELECT id FROM ended

-- name: lock_live
-- $1 id, $2 the waiting states that this build knows: locks the run, and answers
-- whether it is live
WITH w AS (
  SELECT id FROM {schema}.waiting WHERE id = $1 AND state = ANY ($2::text[]) FOR UPDATE
), r AS (
  SELECT id FROM {schema}.running WHERE id = $1 FOR UPDATE
)
SELECT (SELECT count(*) FROM w) + (SELECT count(*) FROM r)

-- name: to_undo
-- $1 id, $2 worker: what the run's history says of undoing it, and how many ms the
-- worker's lease has left
SELECT EXISTS (SELECT FROM {schema}.steps WHERE run_id = $1 AND kind = 'undoable' AND status = 'completed'), s.output, s.error,
  coalesce((SELECT greatest(ceil(extract(epoch FROM expires_at - {now}) * 1000), 0)::bigint FROM {schema}.workers WHERE id = $2), 0)
FROM (VALUES (1)) one LEFT JOIN {schema}.steps s ON s.run_id = $1 AND s.name = 'compensate' AND s.kind = 'unwind'

-- name: unwind_run
-- $1 id, $2 error or NULL to keep it, $3 error and $4 output of the record which
-- says that the run is undone
WITH w AS (
  UPDATE {schema}.waiting SET state = 'ready', run_at = {now}, topic = NULL, event_key = NULL, awaits = NULL, at_gate = NULL,
    priority = coalesce(asked_priority, priority), asked_priority = NULL, error = coalesce($2, error)
  WHERE id = $1 RETURNING id
)
INSERT INTO {schema}.steps (run_id, name, ordinal, kind, status, attempts, started_at, finished_at, error, output)
SELECT id, 'compensate', nextval({step_ordinal}), 'unwind', 'completed', 0, {now}, {now}, $3, $4 FROM w
{upsert_step}

-- name: let_go
-- $1 id, $2 worker, $3 claim, which a cancel has ended to have the run undone
UPDATE {schema}.waiting w SET state = 'ready', run_at = {now}
WHERE w.id = $1 AND w.claims = $3 AND w.state = 'suspended' AND w.run_at > {now} AND EXISTS (
  SELECT FROM {schema}.attempts a
  WHERE a.run_id = $1 AND a.claim = $3 AND a.worker = $2 AND a.outcome = 'unwinding' AND NOT a.reported)
RETURNING w.queue, w.tenant, w.priority, w.run_at

-- name: promote_run
UPDATE {schema}.waiting SET state = 'ready', run_at = least(run_at, {now})
WHERE id = $1 AND (state = 'delayed' OR state = 'suspended' AND run_at <= {now})

-- name: delete_run
-- $1 id, $2 the waiting states that this build knows. Answers the state it had.
WITH ended AS (
  DELETE FROM {schema}.waiting WHERE id = $1 AND state = ANY ($2::text[]) RETURNING id, job, queue, tenant, key, state
), f AS (
  DELETE FROM {schema}.finished WHERE id = $1 RETURNING id, queue, state
), u AS MATERIALIZED (
  SELECT id, state FROM ended UNION ALL SELECT id, state FROM f
), steps AS (
  DELETE FROM {schema}.steps s USING u WHERE s.run_id {of_u}
), attempts AS (
  DELETE FROM {schema}.attempts a USING u WHERE a.run_id {of_u}
), inputs AS (
  DELETE FROM {schema}.inputs i USING u WHERE i.run_id {of_u}
), logs AS (
  DELETE FROM {schema}.logs l USING u WHERE l.run_id {of_u}
), counted AS (
  INSERT INTO {schema}.tally (queue, state, n) SELECT queue, state, -1 FROM f
), {forget_keys}
SELECT state FROM u

-- name: lock_finished
SELECT {finished_run} FROM {schema}.finished f WHERE f.id = $1 FOR UPDATE

-- name: take_key
-- $1 job, $2 tenant, $3 key, $4 id, $5 the key if it is the text of an id
INSERT INTO {schema}.live_keys (job, tenant, key, run_id, alien) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING

-- name: note_first
-- $1 id: the record of a first attempt that completed, which its run stood for
INSERT INTO {schema}.attempts (run_id, claim, attempt, worker, outcome, reported, claimed_at, settled_at, module, steps)
SELECT f.id, f.claims, f.attempt, f.worker, 'completed', true, f.claimed_at, f.finished_at, f.module,
  (SELECT count(*) FROM {schema}.steps s WHERE s.run_id = f.id)
FROM {schema}.finished f WHERE f.id = $1 AND f.state = 'done' AND f.claims = 1
ON CONFLICT DO NOTHING

-- name: requeue_run
-- $1 id, $2 attempts or 0 to keep them, $3 whether it goes on being undone, $4 error
-- or NULL to keep it, $5 whether it leaves its module
WITH f AS (
  DELETE FROM {schema}.finished WHERE id = $1 RETURNING *
), counted AS (
  INSERT INTO {schema}.tally (queue, state, n) SELECT queue, state, -1 FROM f
)
INSERT INTO {schema}.waiting (id, job, queue, tenant, key, state, priority, attempt, max_attempts, claims, orphans,
  run_at, created_at, started_at, claimed_at, module, parent, enqueued_by, traceparent, error, input, gate)
SELECT id, job, queue, tenant, key, 'ready', priority, CASE WHEN $3::boolean THEN m.most ELSE 0 END, m.most, claims, 0,
  {now}, created_at, started_at, claimed_at, CASE WHEN NOT $5::boolean THEN module END, parent, enqueued_by, traceparent,
  coalesce($4, error), input, gate
FROM f, LATERAL (SELECT CASE WHEN $2::integer > 0 THEN $2::integer ELSE f.max_attempts END AS most) m

-- name: left_to_undo
-- $1 id: whether a step of it is not undone
SELECT EXISTS (SELECT FROM {schema}.steps s WHERE s.run_id = $1 AND s.kind = 'undoable' AND s.status = 'completed' AND NOT EXISTS (
  SELECT FROM {schema}.steps c
  WHERE c.run_id = $1 AND c.name = 'compensate:' || s.name AND c.kind = 'compensation' AND c.status = 'completed'))

-- name: resume_unwind
-- $1 id, $2 output of the record which says that the run is undone
UPDATE {schema}.steps SET output = $2 WHERE run_id = $1 AND name = 'compensate' AND kind = 'unwind'

-- name: delete_steps_from
-- $1 id, $2 name: that record, and those after it
DELETE FROM {schema}.steps s USING (SELECT ordinal FROM {schema}.steps WHERE run_id = $1 AND name = $2) f
WHERE s.run_id = $1 AND s.ordinal >= f.ordinal

-- name: now
SELECT {now}
