-- define: own_priority
-- of a run that is not ready any more, or anew
priority = coalesce(asked_priority, priority), asked_priority = NULL

-- name: worker_alive
SELECT 1 FROM workers WHERE id = ?1 AND expires_at > ?2

-- name: next_due
-- ?1 queue, ?2 now: what waits for a time yet to come.
SELECT min(run_at) FROM runs INDEXED BY runs_waiting WHERE {waiting} AND queue = ?1 AND run_at > ?2

-- name: any_due
SELECT 1 FROM runs INDEXED BY runs_waiting WHERE {waiting} AND queue = ?1 AND run_at <= ?2 LIMIT 1

-- name: promote
-- ?1 queue, ?2 now, ?3 limit
UPDATE runs SET state = 'ready', topic = NULL, event_key = NULL, awaits = NULL WHERE seq IN (
  SELECT seq FROM runs INDEXED BY runs_waiting
  WHERE {waiting} AND queue = ?1 AND run_at <= ?2 ORDER BY run_at LIMIT ?3)

-- name: first_of_next_tenant
-- ?1 queue, ?2 tenant. The head of the first tenant after ?2 that has ready runs:
-- one seek in runs_ready, however many tenants and runs there are.
SELECT {run}, {input} FROM runs INDEXED BY runs_ready
WHERE state = 'ready' AND queue = ?1 AND tenant > ?2
ORDER BY tenant, priority, run_at, id LIMIT 1

-- name: first_of_first_tenant
SELECT {run}, {input} FROM runs INDEXED BY runs_ready
WHERE state = 'ready' AND queue = ?1
ORDER BY tenant, priority, run_at, id LIMIT 1

-- name: more_of_tenant
-- ?1 queue, ?2 tenant, ?3 limit, ?4 offset
SELECT {run}, {input} FROM runs INDEXED BY runs_ready
WHERE state = 'ready' AND queue = ?1 AND tenant = ?2
ORDER BY priority, run_at, id LIMIT ?3 OFFSET ?4

-- name: claim_run
-- ?1 seq, ?2 worker, ?3 now
UPDATE runs SET state = 'running', worker = ?2, attempt = attempt + 1, claims = claims + 1,
  claimed_at = ?3, started_at = coalesce(started_at, ?3), {own_priority}
WHERE seq = ?1
