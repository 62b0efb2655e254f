-- name: list_steps
SELECT steps.name, steps.seq, kind, status, attempts, wake_at, steps.started_at, steps.finished_at,
  steps.error_code, steps.error_message, steps.error_fix, steps.error_stack, steps.output,
  steps.topic, steps.event_key, steps.place, steps.child
FROM runs INDEXED BY runs_id JOIN steps ON steps.run = runs.seq
WHERE runs.id = ?1 ORDER BY steps.seq

-- name: unwind_of
-- ?1 id: the record which says that the run is undone
SELECT steps.output FROM runs INDEXED BY runs_id JOIN steps ON steps.run = runs.seq
WHERE runs.id = ?1 AND steps.name = 'compensate' AND steps.kind = 'unwind'

-- name: upsert_step
-- ?1 run … ?14 output, in the order of the columns. A record that exists keeps
-- its seq and started_at; the answered seq says which it was. A start that comes
-- after the end changes nothing, and answers no seq.
INSERT INTO steps (run, name, seq, kind, status, attempts, wake_at, started_at, finished_at,
  error_code, error_message, error_fix, error_stack, output)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
ON CONFLICT (run, name) DO UPDATE SET
  kind = excluded.kind, status = excluded.status, attempts = excluded.attempts,
  wake_at = excluded.wake_at, finished_at = excluded.finished_at,
  error_code = excluded.error_code, error_message = excluded.error_message,
  error_fix = excluded.error_fix, error_stack = excluded.error_stack, output = excluded.output
WHERE excluded.status <> 'started' OR steps.status NOT IN ('completed', 'failed')
RETURNING seq

-- name: set_steps
-- ?1 seq, ?2 steps, ?3 module
UPDATE runs SET steps = ?2, module = ?3 WHERE seq = ?1
