-- define: schedule
name, spec, watermark, fired_occurrence, fired_at, fires, skipped_occurrence, skipped_for, skips, missed,
paused_at, paused_by, holder, leased_until

-- name: lead_schedule
-- ?1 name, ?2 spec, ?3 now, ?4 holder, ?5 leased_until, ?6 whether others are dead
INSERT INTO schedules (name, spec, watermark, holder, leased_until) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name) DO UPDATE SET holder = ?4, leased_until = ?5, spec = ?2,
  watermark = CASE WHEN spec = ?2 THEN watermark ELSE max(watermark, ?3) END
WHERE holder = ?4 OR leased_until <= ?3 OR ?6 = 1
RETURNING {schedule}

-- name: release_schedules
UPDATE schedules SET holder = '', leased_until = 0 WHERE holder = ?1

-- name: live_occurrences
-- ?1 job, ?2 tenant, ?3 low, ?4 high: live runs whose key may be that of an occurrence
SELECT id, key FROM runs INDEXED BY runs_key
WHERE job = ?1 AND tenant = ?2 AND key >= ?3 AND key < ?4 AND key <> '' AND {live}

-- name: may_fire
-- ?1 name, ?2 holder, ?3 the watermark that it must have
SELECT 1 FROM schedules WHERE name = ?1 AND holder = ?2 AND watermark = ?3 AND paused_at IS NULL

-- name: fired_schedule
-- ?1 name, ?2 watermark, ?3 missed, ?4 occurrence, ?5 now
UPDATE schedules SET watermark = ?2, missed = missed + ?3, fired_occurrence = ?4, fired_at = ?5, fires = fires + 1 WHERE name = ?1

-- name: skipped_schedule
-- ?1 name, ?2 watermark, ?3 missed, ?4 occurrence, ?5 the run that is live
UPDATE schedules SET watermark = ?2, missed = missed + ?3, skipped_occurrence = ?4, skipped_for = ?5, skips = skips + 1 WHERE name = ?1

-- name: list_schedules
SELECT {schedule} FROM schedules ORDER BY name

-- name: find_schedule
SELECT {schedule} FROM schedules WHERE name = ?1

-- name: pause_schedule
-- ?1 name, ?2 now, ?3 by whom. The first pause stays.
INSERT INTO schedules (name, spec, watermark, paused_at, paused_by) VALUES (?1, '', ?2, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET paused_at = ?2, paused_by = ?3 WHERE paused_at IS NULL

-- name: resume_schedule
UPDATE schedules SET paused_at = NULL, paused_by = '' WHERE name = ?1 AND paused_at IS NOT NULL

-- name: forget_schedule
-- ?1 name, ?2 now
DELETE FROM schedules WHERE name = ?1 AND leased_until <= ?2
