-- name: paused
SELECT kind, name FROM pauses WHERE paused_at IS NOT NULL

-- name: pause_of
SELECT paused_at FROM pauses WHERE kind = ?1 AND name = ?2

-- name: set_pause
-- ?1 kind, ?2 name, ?3 paused_at or NULL, ?4 now, ?5 by, ?6 reason
INSERT INTO pauses (kind, name, paused_at, changed_at, changed_by, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (kind, name) DO UPDATE SET paused_at = excluded.paused_at, changed_at = excluded.changed_at,
  changed_by = excluded.changed_by, reason = excluded.reason

-- name: list_pauses
SELECT kind, name, paused_at, changed_at, changed_by, reason FROM pauses ORDER BY kind, name

-- name: next_lane
-- ?1 queue, ?2 tenant, ?3 priority: the next tenant and priority with ready runs, and when its first was due
SELECT tenant, priority, run_at FROM runs INDEXED BY runs_ready
WHERE state = 'ready' AND queue = ?1 AND (tenant, priority) > (?2, ?3) ORDER BY tenant, priority, run_at LIMIT 1

-- name: age_lane
-- ?1 queue, ?2 tenant, ?3 priority, ?4 due by, ?5 limit, ?6 priority to be
UPDATE runs SET asked_priority = priority, priority = ?6 WHERE seq IN (
  SELECT seq FROM runs INDEXED BY runs_ready
  WHERE state = 'ready' AND queue = ?1 AND tenant = ?2 AND priority = ?3 AND run_at <= ?4 ORDER BY run_at LIMIT ?5)

-- name: old_behind
-- ?1 queue, ?2 priority, ?3 due by, ?4 limit: what waits behind gates
SELECT seq FROM runs INDEXED BY runs_gates
WHERE at_gate IS NOT NULL AND state = 'blocked' AND queue = ?1 AND priority > ?2 AND run_at <= ?3 LIMIT ?4

-- name: age_blocked
-- ?1 seq, ?2 priority to be
UPDATE runs SET asked_priority = priority, priority = ?2 WHERE seq = ?1 AND state = 'blocked'
