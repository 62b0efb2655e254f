-- name: held
-- ?1 id, ?2 worker, ?3 claim. The fence of every write of an attempt: no row
-- unless the run is running under exactly that claim.
SELECT seq, queue, attempt, claimed_at, module, steps, orphans, at_gate FROM runs INDEXED BY runs_id
WHERE id = ?1 AND state = 'running' AND worker = ?2 AND claims = ?3

-- name: settle_done
-- ?1 seq, ?2 output, ?3 now, ?4 expires_at. The end of most attempts.
UPDATE runs SET state = 'done', output = ?2, finished_at = ?3, expires_at = ?4, settled = claims, orphans = 0
WHERE seq = ?1

-- name: settle_other
-- ?1 seq, ?2 state, ?3 attempt, ?4 run_at or NULL to keep it, ?5 orphans,
-- ?6 finished_at, ?7 expires_at
UPDATE runs SET state = ?2, attempt = ?3, run_at = coalesce(?4, run_at), orphans = ?5,
  finished_at = ?6, expires_at = ?7, settled = claims
WHERE seq = ?1

-- name: set_error
UPDATE runs SET error_code = ?2, error_message = ?3, error_fix = ?4, error_stack = ?5 WHERE seq = ?1

-- name: set_module
UPDATE runs SET module = ?2 WHERE seq = ?1

-- name: set_progress
UPDATE runs SET progress = ?2, progress_note = ?3 WHERE seq = ?1

-- name: insert_attempt
-- ?1 run … ?15 error_stack, in the order of the columns.
INSERT INTO attempts (run, claim, attempt, worker, outcome, reported, claimed_at, settled_at, run_at, module, steps,
  error_code, error_message, error_fix, error_stack)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)

-- name: settled_before
-- ?1 id, ?2 worker, ?3 claim. Whether this claim was already settled by its own
-- worker, and when the run was due then: in the timeline, or, of a first attempt
-- that completed and left no record, in the row.
SELECT attempts.run_at FROM runs INDEXED BY runs_id JOIN attempts ON attempts.run = runs.seq
WHERE runs.id = ?1 AND attempts.claim = ?3 AND attempts.worker = ?2 AND attempts.reported = 1
UNION ALL
SELECT NULL FROM runs INDEXED BY runs_id
WHERE id = ?1 AND claims = ?3 AND settled = ?3 AND worker = ?2
LIMIT 1
