-- define: forget_keys
-- of runs that ended, in the order in which keys are taken
forgotten AS (
  DELETE FROM {schema}.live_keys k USING (SELECT id, job, tenant, key FROM ended WHERE key <> '' ORDER BY job, tenant, key) u
  WHERE {key_of_u} AND k.run_id = u.id
)

-- define: done_tail
-- of rows of ended
moved AS (
  INSERT INTO {schema}.finished (id, job, queue, tenant, key, state, priority, attempt, max_attempts, claims, orphans,
    run_at, created_at, started_at, claimed_at, finished_at, expires_at, worker, module, parent, enqueued_by, traceparent,
    error, progress, input, output, gate)
  SELECT id, job, queue, tenant, key, 'done', priority, attempt, max_attempts, claims, 0,
    run_at, created_at, started_at, claimed_at, {now}, CASE WHEN keep > 0 THEN {now} + keep * interval '1 millisecond' END,
    worker, coalesce(new_module, module), parent, enqueued_by, traceparent,
    error, coalesce(new_progress, progress), input, output, gate
  FROM ended
), noted AS (
  INSERT INTO {schema}.attempts (run_id, claim, attempt, worker, outcome, reported, claimed_at, settled_at, module, steps)
  SELECT id, claims, attempt, worker, 'completed', true, claimed_at, {now}, coalesce(new_module, module),
    (SELECT count(*) FROM {schema}.steps s WHERE s.run_id = e.id)
  FROM ended e WHERE claims > 1
), counted AS (
  INSERT INTO {schema}.tally (queue, state, n) SELECT queue, 'done', count(*) FROM ended GROUP BY queue
), {forget_keys}
SELECT ord FROM ended

-- name: settle_done
-- $1 ids, $2 workers, $3 claims, $4 outputs, $5 retention in ms, 0 for ever,
-- $6 modules or NULL, $7 progress or NULL. The end of most attempts.
WITH u AS (
  SELECT u.* FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bytea[], $5::bigint[], $6::text[], $7::text[]) WITH ORDINALITY
    u(id, worker, claim, output, keep, module, progress, ord)
), ended AS (
  DELETE FROM {schema}.running r USING u
  WHERE r.id {of_u} AND r.worker = u.worker AND r.claims = u.claim
  RETURNING u.ord, r.*, u.output, u.keep, u.module AS new_module, u.progress AS new_progress
), {done_tail}

-- name: settle_done_alike
-- As settle_done, of one worker's and alike: $1 worker, $2 ids, $3 claims,
-- $4 outputs, $5 retention, $6 module or NULL.
WITH u AS (
  SELECT u.* FROM unnest($2::uuid[], $3::bigint[], $4::bytea[]) WITH ORDINALITY u(id, claim, output, ord)
), ended AS (
  DELETE FROM {schema}.running r USING u
  WHERE r.id {of_u} AND r.worker = $1 AND r.claims = u.claim
  RETURNING u.ord, r.*, u.output, $5::bigint AS keep, $6::text AS new_module, NULL::text AS new_progress
), {done_tail}

-- name: settle
-- $1 ids, $2 workers, $3 claims, $4 outcomes, $5 states, $6 delays in ms,
-- $7 whether the attempt is given back, $8 orphans or NULL to keep them,
-- $9 whether its worker reports it, $10 errors of the attempt or NULL,
-- $11 errors of the run or NULL to keep it, $12 outputs, $13 retention in ms,
-- $14 modules or NULL, $15 progress or NULL; and the step recorded with it:
-- $16 name or NULL, $17 kind, $18 status, $19 attempts, $20 sleep in ms,
-- $21 wake time, $22 ms since its body began, $23 error, $24 output.
WITH u AS MATERIALIZED (
  SELECT u.* FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::boolean[], $8::integer[],
    $9::boolean[], $10::text[], $11::text[], $12::bytea[], $13::bigint[], $14::text[], $15::text[],
    $16::text[], $17::text[], $18::text[], $19::integer[], $20::bigint[], $21::timestamptz[], $22::bigint[], $23::text[], $24::bytea[])
    WITH ORDINALITY u(id, worker, claim, outcome, to_state, delay, uncounted, new_orphans, reported, attempt_error, run_error,
      output, keep, new_module, new_progress, step, step_kind, step_status, step_attempts, sleep, wake_at, elapsed,
      step_error, step_output, ord)
), gone AS (
  DELETE FROM {schema}.running r USING u
  WHERE r.id {of_u} AND r.worker = u.worker AND r.claims = u.claim
  RETURNING r.*, u.ord, u.outcome, u.to_state, u.uncounted, u.new_orphans, u.reported, u.attempt_error, u.run_error, u.output, u.keep,
    coalesce(u.new_module, r.module) AS new_module, coalesce(u.new_progress, r.progress) AS new_progress,
    u.step, u.step_kind, u.step_status, u.step_attempts, u.elapsed, u.step_error, u.step_output,
    coalesce(u.wake_at, {now} + u.sleep * interval '1 millisecond') AS step_wake,
    CASE
      WHEN u.to_state NOT IN ('ready', 'delayed', 'suspended') THEN NULL
      WHEN u.step_status IN ('sleeping', 'waiting') THEN coalesce(u.wake_at, {now} + u.sleep * interval '1 millisecond')
      WHEN u.to_state = 'ready' THEN {now}
      ELSE {now} + u.delay * interval '1 millisecond'
    END AS due
), resting AS (
  INSERT INTO {schema}.waiting (id, job, queue, tenant, key, state, priority, attempt, max_attempts, claims, orphans,
    run_at, created_at, started_at, claimed_at, module, parent, enqueued_by, traceparent, error, progress, input, gate)
  SELECT id, job, queue, tenant, key, to_state, priority, CASE WHEN uncounted THEN greatest(attempt - 1, 0) ELSE attempt END, max_attempts,
    claims, coalesce(new_orphans, orphans), due, created_at, started_at, claimed_at,
    new_module, parent, enqueued_by, traceparent, coalesce(run_error, error), new_progress, input, gate
  FROM gone WHERE due IS NOT NULL
), ended AS (
  SELECT * FROM gone WHERE due IS NULL
), moved AS (
  INSERT INTO {schema}.finished (id, job, queue, tenant, key, state, priority, attempt, max_attempts, claims, orphans,
    run_at, created_at, started_at, claimed_at, finished_at, expires_at, worker, module, parent, enqueued_by, traceparent,
    error, progress, input, output, gate)
  SELECT id, job, queue, tenant, key, to_state, priority, CASE WHEN uncounted THEN greatest(attempt - 1, 0) ELSE attempt END, max_attempts,
    claims, coalesce(new_orphans, orphans), run_at, created_at, started_at, claimed_at, {now},
    CASE WHEN keep > 0 THEN {now} + keep * interval '1 millisecond' END,
    worker, new_module, parent, enqueued_by, traceparent, coalesce(run_error, error), new_progress, input, output, gate
  FROM ended
), noted AS (
  INSERT INTO {schema}.attempts (run_id, claim, attempt, worker, outcome, reported, claimed_at, settled_at, run_at, module, steps, error)
  SELECT id, claims, attempt, worker, outcome, reported, claimed_at, {now}, due, new_module,
    (SELECT count(*) FROM {schema}.steps s WHERE s.run_id = g.id)
      + CASE WHEN g.step IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.steps s WHERE s.run_id = g.id AND s.name = g.step OFFSET 0) THEN 1 ELSE 0 END,
    attempt_error
  FROM gone g WHERE claims > 1 OR outcome <> 'completed'
), recorded AS (
  INSERT INTO {schema}.steps (run_id, name, ordinal, kind, status, attempts, wake_at, started_at, finished_at, error, output)
  SELECT id, step, nextval({step_ordinal}), step_kind, step_status, step_attempts, step_wake,
    {now} - elapsed * interval '1 millisecond', {now}, step_error, step_output
  FROM gone WHERE step IS NOT NULL
  {upsert_step}
), counted AS (
  INSERT INTO {schema}.tally (queue, state, n) SELECT queue, to_state, count(*) FROM ended GROUP BY queue, to_state
), {forget_keys}
SELECT ord, due, {now}, queue, tenant, priority, due <= {now} + interval '1 second' AS soon FROM gone

-- name: settled_before
-- $1 ids, $2 workers, $3 claims. Which were already settled by their own worker:
-- in the timeline, or as the first attempt that left nothing in it.
SELECT u.ord, s.due
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) WITH ORDINALITY u(id, worker, claim, ord)
CROSS JOIN LATERAL (
  SELECT a.run_at AS due FROM {schema}.attempts a
  WHERE a.run_id {of_u} AND a.claim = u.claim AND a.worker = u.worker AND a.reported
  UNION ALL
  SELECT NULL FROM {schema}.finished f
  WHERE f.id {of_u} AND f.claims = 1 AND u.claim = 1 AND f.state = 'done' AND f.worker = u.worker) s
