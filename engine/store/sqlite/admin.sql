-- name: get_run
SELECT {run}, {input}, output FROM runs INDEXED BY runs_id WHERE id = ?1

-- name: list_attempts
SELECT attempts.claim, attempts.attempt, attempts.worker, attempts.outcome, attempts.claimed_at, attempts.settled_at,
  attempts.run_at, attempts.error_code, attempts.error_message, attempts.error_fix, attempts.error_stack,
  attempts.module, attempts.steps
FROM runs INDEXED BY runs_id JOIN attempts ON attempts.run = runs.seq
WHERE runs.id = ?1 ORDER BY attempts.claim

-- name: cancel_run
-- ?1 seq, ?2 now, ?3 expires_at
UPDATE runs SET state = 'cancelled', finished_at = ?2, expires_at = ?3, {own_priority} WHERE seq = ?1

-- name: to_undo
-- ?1 run: what its history says of undoing it, in one row or two
SELECT kind, output, error_code, error_message, error_fix, error_stack FROM steps WHERE run = ?1 AND name = 'compensate' AND kind = 'unwind'
UNION ALL
SELECT * FROM (SELECT kind, NULL, NULL, NULL, NULL, NULL FROM steps WHERE run = ?1 AND kind = 'undoable' AND status = 'completed' LIMIT 1)

-- name: lease_end
SELECT expires_at FROM workers WHERE id = ?1

-- name: unwind_run
-- ?1 seq, ?2 state, ?3 run_at
UPDATE runs SET state = ?2, run_at = ?3, topic = NULL, event_key = NULL, awaits = NULL, {own_priority} WHERE seq = ?1

-- name: claim_ending
-- ?1 id, ?2 claim
SELECT attempts.outcome, attempts.reported, attempts.worker
FROM runs INDEXED BY runs_id JOIN attempts ON attempts.run = runs.seq
WHERE runs.id = ?1 AND attempts.claim = ?2

-- name: record_first_attempt
-- The record that a first attempt left out when it completed, because its run
-- said the same: after a requeue the run does not any more.
INSERT INTO attempts (run, claim, attempt, worker, outcome, reported, claimed_at, settled_at, module, steps)
SELECT seq, claims, attempt, worker, 'completed', 1, claimed_at, finished_at, module, steps
FROM runs WHERE seq = ?1 AND state = 'done' AND claims = 1

-- name: requeue_run
-- ?1 seq, ?2 now, ?3 max_attempts, ?4 steps, ?5 attempt, ?6 module
UPDATE runs SET state = 'ready', attempt = ?5, module = ?6, max_attempts = ?3, orphans = 0, steps = ?4, run_at = ?2,
  finished_at = NULL, expires_at = NULL, output = NULL, progress = NULL, progress_note = NULL,
  topic = NULL, event_key = NULL, awaits = NULL
WHERE seq = ?1

-- name: left_to_undo
-- ?1 seq: a row if a step of it is not undone
SELECT 1 FROM steps s WHERE s.run = ?1 AND s.kind = 'undoable' AND s.status = 'completed' AND NOT EXISTS (
  SELECT 1 FROM steps c WHERE c.run = ?1 AND c.name = 'compensate:' || s.name AND c.kind = 'compensation' AND c.status = 'completed')
LIMIT 1

-- name: resume_unwind
-- ?1 seq, ?2 output of the record which says that the run is undone
UPDATE steps SET output = ?2 WHERE run = ?1 AND name = 'compensate' AND kind = 'unwind'

-- name: promote_run
-- ?1 seq, ?2 now
UPDATE runs SET state = 'ready', run_at = min(run_at, ?2) WHERE seq = ?1

-- name: step_seq
SELECT seq FROM steps WHERE run = ?1 AND name = ?2

-- name: delete_steps_from
DELETE FROM steps WHERE run = ?1 AND seq >= ?2

-- name: expired_runs
-- ?1 now, ?2 limit
SELECT seq, queue, state FROM runs INDEXED BY runs_expiry
WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2

-- name: delete_run
DELETE FROM runs WHERE seq = ?1

-- name: delete_run_steps
DELETE FROM steps WHERE run = ?1

-- name: delete_run_attempts
DELETE FROM attempts WHERE run = ?1

-- name: delete_run_payload
DELETE FROM payloads WHERE run = ?1

-- name: queues_ready
-- One seek for each queue that has ready runs.
WITH RECURSIVE queues(name) AS (
  SELECT (SELECT min(queue) FROM runs INDEXED BY runs_ready WHERE state = 'ready')
  UNION ALL
  SELECT (SELECT min(queue) FROM runs INDEXED BY runs_ready WHERE state = 'ready' AND queue > q.name) FROM queues q WHERE q.name IS NOT NULL
)
SELECT name FROM queues WHERE name IS NOT NULL

-- name: stats_ready
-- ?1 queue, ?2 most rows counted
SELECT count(*), min(run_at) FROM (SELECT run_at FROM runs INDEXED BY runs_ready WHERE state = 'ready' AND queue = ?1 LIMIT ?2)

-- name: stats_lanes
-- ?1 queue, ?2 most lanes: the oldest of the first runs of lanes. A lane is a
-- tenant and a priority, and the index has its oldest first.
WITH RECURSIVE lanes(seq) AS (
  SELECT (SELECT seq FROM runs INDEXED BY runs_ready WHERE state = 'ready' AND queue = ?1 ORDER BY tenant, priority, run_at LIMIT 1)
  UNION ALL
  SELECT (
    SELECT n.seq FROM runs n INDEXED BY runs_ready
    WHERE n.state = 'ready' AND n.queue = ?1 AND (n.tenant, n.priority) > (l.tenant, l.priority)
    ORDER BY n.tenant, n.priority, n.run_at LIMIT 1
  ) FROM lanes JOIN runs l ON l.seq = lanes.seq
  LIMIT ?2
)
SELECT min(run_at) FROM lanes JOIN runs ON runs.seq = lanes.seq

-- name: queues_waiting
WITH RECURSIVE queues(name) AS (
  SELECT (SELECT min(queue) FROM runs INDEXED BY runs_waiting WHERE {waiting})
  UNION ALL
  SELECT (SELECT min(queue) FROM runs INDEXED BY runs_waiting WHERE {waiting} AND queue > q.name) FROM queues q WHERE q.name IS NOT NULL
)
SELECT name FROM queues WHERE name IS NOT NULL

-- name: stats_blocked
-- ?1 the most: what waits behind gates is ready
SELECT queue, count(*), min(run_at) FROM (
  SELECT queue, run_at FROM runs INDEXED BY runs_gates WHERE at_gate IS NOT NULL AND state = 'blocked' LIMIT ?1)
GROUP BY queue

-- name: stats_waiting
-- ?1 now, ?2 queue, ?3 most rows counted, those due first: how many are due, the
-- earliest of them, how many are not, by state
SELECT count(*) FILTER (WHERE run_at <= ?1), min(run_at) FILTER (WHERE run_at <= ?1),
  count(*) FILTER (WHERE run_at > ?1 AND state = 'delayed'),
  count(*) FILTER (WHERE run_at > ?1 AND state = 'suspended')
FROM (SELECT run_at, state FROM runs INDEXED BY runs_waiting WHERE {waiting} AND queue = ?2 ORDER BY run_at LIMIT ?3)

-- name: stats_running
SELECT queue, count(*) FROM runs INDEXED BY runs_running WHERE state = 'running' GROUP BY queue

-- name: stats_ended
SELECT name, done, failed, dead, cancelled FROM queues

-- name: stats_events
-- ?1 most counted
SELECT (SELECT count(*) FROM (SELECT 1 FROM events LIMIT ?1)), (SELECT published_at FROM events ORDER BY seq LIMIT 1)

-- name: stats_workers
SELECT count(*) FROM workers WHERE expires_at > ?1
