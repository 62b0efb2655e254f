-- define: schedule
s.name, s.spec, s.watermark, s.fired_occurrence, s.fired_at, s.fires, s.skipped_occurrence, s.skipped_for, s.skips, s.missed,
s.paused_at, s.paused_by, s.holder, nullif(s.leased_until, '-infinity') AS leased_until

-- name: lead_schedules
-- $1 holder, $2 lease in ms, $3 whether others are dead, $4 names, $5 specs. What
-- another holds is left out before it is tried: a fleet's standbys lock nothing.
INSERT INTO {schema}.schedules AS s (name, spec, watermark, holder, leased_until)
SELECT u.name, u.spec, {now}, $1, {now} + $2::bigint * interval '1 millisecond'
FROM unnest($4::text[], $5::text[]) u(name, spec)
WHERE $3 OR NOT EXISTS (SELECT FROM {schema}.schedules o WHERE o.name = u.name AND o.holder <> $1 AND o.leased_until > {now} OFFSET 0)
ORDER BY u.name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, leased_until = excluded.leased_until, spec = excluded.spec,
  watermark = CASE WHEN s.spec = excluded.spec THEN s.watermark ELSE greatest(s.watermark, excluded.watermark) END
WHERE s.holder = excluded.holder OR s.leased_until <= {now} OR $3
RETURNING {now}, {schedule}

-- name: release_schedules
UPDATE {schema}.schedules SET holder = '', leased_until = '-infinity' WHERE holder = $1

-- name: fire_schedule
-- $1 name, $2 holder, $3 the watermark that it must have, $4 the one that it gets,
-- $5 occurrence, $6 how many it drops; $7 jobs, $8 tenants of which a live run,
-- with a key from $9 to $10 whose occurrence begins at the character $11, has it
-- skipped. Answers a row if it moved, with the run that has it skipped.
WITH live AS MATERIALIZED (
  SELECT k.run_id FROM unnest($7::text[], $8::text[]) u(job, tenant)
  JOIN {schema}.live_keys k ON k.job = ANY (ARRAY[u.job]) AND k.tenant = u.tenant AND k.key >= $9 AND k.key < $10
  WHERE substr(k.key, $11) ~ '^[0-9]+:' LIMIT 1
), one AS (SELECT (SELECT run_id FROM live) AS run_id)
UPDATE {schema}.schedules s SET watermark = $4, missed = s.missed + $6,
  fired_occurrence = CASE WHEN one.run_id IS NULL THEN $5 ELSE s.fired_occurrence END,
  fired_at = CASE WHEN one.run_id IS NULL THEN {now} ELSE s.fired_at END,
  fires = s.fires + CASE WHEN one.run_id IS NULL THEN 1 ELSE 0 END,
  skipped_occurrence = CASE WHEN one.run_id IS NULL THEN s.skipped_occurrence ELSE $5 END,
  skipped_for = coalesce(one.run_id, s.skipped_for),
  skips = s.skips + CASE WHEN one.run_id IS NULL THEN 0 ELSE 1 END
FROM one
WHERE s.name = $1 AND s.holder = $2 AND s.watermark = $3 AND s.paused_at IS NULL AND $5::timestamptz <= {now}
RETURNING one.run_id

-- name: list_schedules
SELECT {schedule} FROM {schema}.schedules s ORDER BY s.name

-- name: find_schedule
SELECT {schedule} FROM {schema}.schedules s WHERE s.name = $1

-- name: pause_schedule
-- $1 name, $2 by whom. The first pause stays.
INSERT INTO {schema}.schedules AS s (name, spec, watermark, paused_at, paused_by) VALUES ($1, '', {now}, {now}, $2)
ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by WHERE s.paused_at IS NULL
RETURNING s.name

-- name: resume_schedule
UPDATE {schema}.schedules SET paused_at = NULL, paused_by = '' WHERE name = $1 AND paused_at IS NOT NULL RETURNING name

-- name: forget_schedule
DELETE FROM {schema}.schedules s WHERE s.name = $1 AND s.leased_until <= {now} RETURNING s.name
