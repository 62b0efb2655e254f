-- name: insert_worker
-- ?1 id, ?2 host, ?3 pid, ?4 queues, ?5 now, ?6 expires_at
INSERT INTO workers (id, host, pid, queues, started_at, renewed_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)
ON CONFLICT DO NOTHING

-- name: lapse_workers
-- Every lease ends now, for a worker that has proved to be alone.
UPDATE workers SET expires_at = ?1 WHERE expires_at > ?1

-- name: renew_worker
-- ?1 id, ?2 now, ?3 expires_at. A lease that has lapsed stays so.
UPDATE workers SET renewed_at = ?2, expires_at = ?3 WHERE id = ?1 AND expires_at > ?2

-- name: set_queues
UPDATE workers SET queues = ?2 WHERE id = ?1

-- name: held_progress
-- ?1 id, ?2 worker, ?3 claim, ?4 permille, ?5 note
UPDATE runs INDEXED BY runs_id SET progress = ?4, progress_note = ?5
WHERE id = ?1 AND state = 'running' AND worker = ?2 AND claims = ?3

-- name: delete_worker
DELETE FROM workers WHERE id = ?1

-- name: held_state
SELECT state, worker, claims FROM runs INDEXED BY runs_id WHERE id = ?1

-- name: list_workers
SELECT id, host, pid, queues, started_at, renewed_at, expires_at,
  (SELECT count(*) FROM runs INDEXED BY runs_running WHERE state = 'running' AND worker = workers.id)
FROM workers ORDER BY id

-- name: runs_of_worker
-- ?1 worker, ?2 limit
SELECT {run} FROM runs INDEXED BY runs_running
WHERE state = 'running' AND worker = ?1 ORDER BY seq LIMIT ?2
