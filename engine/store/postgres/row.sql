-- define: waiting_run
-- scanRun reads these columns, of whichever table, in this order.
w.id, w.job, w.queue, w.tenant, w.key, w.state, w.priority, w.attempt, w.max_attempts, w.claims, w.orphans,
w.run_at, w.created_at, w.started_at, w.claimed_at, NULL::timestamptz AS finished_at, NULL::timestamptz AS expires_at,
NULL::text AS holder, w.module, w.parent, w.enqueued_by, w.traceparent, w.error, w.progress,
CASE WHEN w.claims = 0 THEN 0 ELSE (SELECT count(*) FROM {schema}.steps s WHERE s.run_id = w.id) END AS steps, w.gate, w.at_gate, w.asked_priority

-- define: running_run
r.id, r.job, r.queue, r.tenant, r.key, 'running'::text AS state, r.priority, r.attempt, r.max_attempts, r.claims, r.orphans,
r.run_at, r.created_at, r.started_at, r.claimed_at, NULL::timestamptz AS finished_at, NULL::timestamptz AS expires_at,
r.worker AS holder, r.module, r.parent, r.enqueued_by, r.traceparent, r.error, r.progress,
(SELECT count(*) FROM {schema}.steps s WHERE s.run_id = r.id) AS steps, r.gate, NULL::text AS at_gate, NULL::smallint AS asked_priority

-- define: finished_run
f.id, f.job, f.queue, f.tenant, f.key, f.state, f.priority, f.attempt, f.max_attempts, f.claims, f.orphans,
f.run_at, f.created_at, f.started_at, f.claimed_at, f.finished_at, f.expires_at,
NULL::text AS holder, f.module, f.parent, f.enqueued_by, f.traceparent, f.error, f.progress,
(SELECT count(*) FROM {schema}.steps s WHERE s.run_id = f.id) AS steps, f.gate, NULL::text AS at_gate, NULL::smallint AS asked_priority
