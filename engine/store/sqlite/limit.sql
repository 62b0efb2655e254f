-- name: due_openings
-- ?1 queue, ?2 now, ?3 limit
SELECT gate FROM openings INDEXED BY openings_due WHERE queue = ?1 AND open_at <= ?2 ORDER BY open_at, gate LIMIT ?3

-- name: any_opening
SELECT 1 FROM openings WHERE queue = ?1 LIMIT 1

-- name: next_opening
-- ?1 queue, ?2 now: what is open already and gave nothing waits for something else
SELECT min(open_at) FROM openings INDEXED BY openings_due WHERE queue = ?1 AND open_at > ?2

-- name: open_gate
-- ?1 queue, ?2 gate, ?3 open_at
INSERT INTO openings (queue, gate, open_at) VALUES (?1, ?2, ?3)
ON CONFLICT (queue, gate) DO UPDATE SET open_at = excluded.open_at

-- name: close_gate
DELETE FROM openings WHERE queue = ?1 AND gate = ?2

-- name: queue_behind
-- ?1 gate, ?2 queue: the next queue of which runs wait behind it
SELECT queue FROM runs INDEXED BY runs_gates
WHERE at_gate = ?1 AND state = 'blocked' AND queue > ?2 ORDER BY queue LIMIT 1

-- name: next_gate
-- ?1 gate: the next that a run is at
SELECT at_gate FROM runs INDEXED BY runs_gates WHERE at_gate > ?1 ORDER BY at_gate LIMIT 1

-- name: behind_in
-- ?1 gate, ?2 queue
SELECT 1 FROM runs INDEXED BY runs_gates WHERE at_gate = ?1 AND state = 'blocked' AND queue = ?2 LIMIT 1

-- name: behind_of_first_tenant
-- ?1 gate, ?2 queue
SELECT tenant FROM runs INDEXED BY runs_gates
WHERE at_gate = ?1 AND state = 'blocked' AND queue = ?2 ORDER BY tenant LIMIT 1

-- name: behind_of_next_tenant
-- ?1 gate, ?2 queue, ?3 tenant
SELECT tenant FROM runs INDEXED BY runs_gates
WHERE at_gate = ?1 AND state = 'blocked' AND queue = ?2 AND tenant > ?3 ORDER BY tenant LIMIT 1

-- name: behind_of_tenant
-- ?1 gate, ?2 queue, ?3 tenant, ?4 limit
SELECT {run}, {input} FROM runs INDEXED BY runs_gates
WHERE at_gate = ?1 AND state = 'blocked' AND queue = ?2 AND tenant = ?3 ORDER BY priority, run_at, id LIMIT ?4

-- name: ready_first_tenant
-- ?1 queue
SELECT tenant FROM runs INDEXED BY runs_ready WHERE state = 'ready' AND queue = ?1 ORDER BY tenant LIMIT 1

-- name: ready_next_tenant
-- ?1 queue, ?2 tenant
SELECT tenant FROM runs INDEXED BY runs_ready WHERE state = 'ready' AND queue = ?1 AND tenant > ?2 ORDER BY tenant LIMIT 1

-- name: running_at_gate
-- ?1 gate, ?2 the most that matters
SELECT count(*), max(id) FROM (
  SELECT id FROM runs INDEXED BY runs_gates WHERE at_gate = ?1 AND state = 'running' LIMIT ?2)

-- name: running_of_tenant
-- ?1 queue, ?2 tenant
SELECT count(*) FROM runs INDEXED BY runs_counted WHERE counted = 1 AND state = 'running' AND queue = ?1 AND tenant = ?2

-- name: rate_state
SELECT state FROM rates WHERE scope = ?1 AND tenant = ?2

-- name: set_rate
INSERT INTO rates (scope, tenant, state) VALUES (?1, ?2, ?3) ON CONFLICT (scope, tenant) DO UPDATE SET state = excluded.state

-- name: forget_rates
-- ?1 nanoseconds: a rate that has been paid for says what none says
DELETE FROM rates WHERE state <= ?1

-- name: set_aside
-- ?1 seq, ?2 gate
UPDATE runs SET state = 'blocked', at_gate = ?2 WHERE seq = ?1

-- name: set_more_aside
-- ?1 gate, ?2 queue, ?3 limit
UPDATE runs SET state = 'blocked', at_gate = ?1 WHERE seq IN (
  SELECT seq FROM runs INDEXED BY runs_gated WHERE gate = ?1 AND queue = ?2 AND state = 'ready' LIMIT ?3)

-- name: set_lane_aside
-- ?1 gate, ?2 queue, ?3 tenant, ?4 job, ?5 limit
UPDATE runs SET state = 'blocked', at_gate = ?1 WHERE seq IN (
  SELECT seq FROM runs INDEXED BY runs_ready WHERE state = 'ready' AND queue = ?2 AND tenant = ?3 AND job = ?4 LIMIT ?5)

-- name: claim_limited
-- ?1 seq, ?2 worker, ?3 now, ?4 gate or NULL, ?5 1 if its tenant is limited
UPDATE runs SET state = 'running', worker = ?2, attempt = attempt + 1, claims = claims + 1,
  claimed_at = ?3, started_at = coalesce(started_at, ?3), at_gate = ?4, counted = ?5, {own_priority}
WHERE seq = ?1

-- name: at_gate
SELECT at_gate, state = 'running' FROM runs WHERE seq = ?1

-- name: leave_gate
UPDATE runs SET at_gate = NULL WHERE seq = ?1
