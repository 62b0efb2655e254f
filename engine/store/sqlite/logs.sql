-- name: save_log
-- ?1 run, ?2 claim, ?3 first line, ?4 last line, ?5 attempt, ?6 bytes, ?7 data. Those
-- of the claims before may be gone: then earlier lines of this one know how many.
INSERT INTO logs (run, claim, line, last, attempt, earlier, bytes, data)
VALUES (?1, ?2, ?3, ?4, ?5,
  coalesce((SELECT l.earlier FROM logs l WHERE l.run = ?1 AND l.claim = ?2 LIMIT 1),
    (SELECT l.earlier + l.last FROM logs l WHERE l.run = ?1 AND l.claim < ?2 ORDER BY l.claim DESC, l.line DESC LIMIT 1), 0), ?6, ?7)
ON CONFLICT (run, claim, line) DO UPDATE SET last = excluded.last, bytes = excluded.bytes, data = excluded.data

-- name: log_sizes
-- the latest first
SELECT claim, line, last, bytes FROM logs WHERE run = ?1 ORDER BY claim DESC, line DESC

-- name: trim_log
-- ?1 run, ?2 claim, ?3 line: up to that row
DELETE FROM logs WHERE run = ?1 AND (claim, line) <= (?2, ?3)

-- name: list_log
SELECT logs.claim, logs.attempt, logs.earlier, logs.data
FROM runs INDEXED BY runs_id JOIN logs ON logs.run = runs.seq
WHERE runs.id = ?1 ORDER BY logs.claim, logs.line

-- name: delete_run_log
DELETE FROM logs WHERE run = ?1
