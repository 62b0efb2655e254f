-- define: run
-- scanRun reads these in this order.
seq, id, job, queue, tenant, key, state, priority, attempt, max_attempts,
claims, orphans, steps, worker, run_at, created_at, started_at, claimed_at, finished_at, expires_at,
module, parent, enqueued_by, traceparent, error_code, error_message, error_fix, error_stack, progress, progress_note,
gate, at_gate, asked_priority

-- define: input
coalesce(input, (SELECT payloads.input FROM payloads WHERE payloads.run = runs.seq))

-- define: live
-- SQLite uses a partial index only where a statement repeats its condition:
-- this one is in runs_key, the next in runs_waiting.
finished_at IS NULL

-- define: waiting
(state = 'delayed' OR state = 'suspended')
