-- name: lapsed_workers
SELECT id FROM workers WHERE expires_at <= ?1 ORDER BY expires_at, id

-- name: release_run
-- ?1 seq, ?2 state, ?3 attempt, ?4 orphans, ?5 run_at or NULL to keep it, ?6 finished_at,
-- ?7 expires_at. settled stays: the claim was not ended by its worker.
UPDATE runs SET state = ?2, attempt = ?3, orphans = ?4, run_at = coalesce(?5, run_at), finished_at = ?6, expires_at = ?7
WHERE seq = ?1
