-- A claim under limits is one transaction of several statements. Claims of one
-- queue, and of one limited job, take turns: a count of what is running is then
-- exact, since ends only lower it.

-- name: take_turn
-- $1 numbers, sorted, so that two claims cannot wait for each other
SELECT pg_advisory_xact_lock(n) FROM unnest($1::bigint[]) n

-- name: limited_head
-- $1 worker, $2 queue. Answers whether the worker is alive, the time, whether the
-- queue is paused, and when the next that waits for a time is due. The lock is
-- that of claim_head.
WITH alive AS (
  SELECT 1 FROM {schema}.workers WHERE id = $1 AND expires_at > {now} FOR KEY SHARE
)
SELECT EXISTS (SELECT FROM alive) AS alive, {now} AS now,
  EXISTS (SELECT FROM {schema}.pauses p WHERE p.kind = 'queue' AND p.name = $2 AND p.paused_at IS NOT NULL) AS paused,
  (SELECT n.run_at FROM {schema}.waiting n
   WHERE n.queue = $2 AND n.state IN ('delayed', 'suspended') ORDER BY n.run_at LIMIT 1) AS next_due

-- name: paused_now
SELECT kind, name FROM {schema}.pauses WHERE paused_at IS NOT NULL

-- name: due_openings
-- $1 queue, $2 the most
SELECT n, gate FROM {schema}.openings WHERE queue = $1 AND open_at <= {now} ORDER BY n LIMIT $2

-- name: next_opening
-- $1 queue
SELECT min(open_at) FROM {schema}.openings WHERE queue = $1 AND open_at > {now}

-- name: close_openings
DELETE FROM {schema}.openings WHERE n = ANY ($1::bigint[])

-- name: reopen
-- $1 queue, $2 gates, $3 when they may be looked behind again, NULL for at once:
-- those that something waits behind, in this queue or, with room, in others.
INSERT INTO {schema}.openings (queue, gate, open_at)
SELECT b.queue, u.gate, CASE WHEN u.at IS NULL THEN '-infinity' ELSE to_timestamp(u.at / 1000.0) END
FROM unnest($2::text[], $3::bigint[]) u(gate, at)
CROSS JOIN LATERAL (
  WITH RECURSIVE behind(queue) AS (
    (SELECT w.queue FROM {schema}.waiting w WHERE w.state = 'blocked' AND w.at_gate = u.gate ORDER BY w.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT w.queue FROM {schema}.waiting w WHERE w.state = 'blocked' AND w.at_gate = u.gate AND w.queue > b.queue ORDER BY w.queue LIMIT 1)
    FROM behind b WHERE b.queue IS NOT NULL
  )
  SELECT queue FROM behind WHERE queue IS NOT NULL) b
WHERE b.queue = $1 OR u.at IS NULL AND NOT EXISTS (SELECT FROM {schema}.openings o WHERE o.queue = b.queue AND o.gate = u.gate OFFSET 0)

-- name: recheck
-- $1 queue: opens every gate that runs of the queue wait behind
INSERT INTO {schema}.openings (queue, gate)
WITH RECURSIVE gates(gate) AS (
  (SELECT w.at_gate FROM {schema}.waiting w WHERE w.state = 'blocked' ORDER BY w.at_gate LIMIT 1)
  UNION ALL
  SELECT (SELECT w.at_gate FROM {schema}.waiting w WHERE w.state = 'blocked' AND w.at_gate > g.gate ORDER BY w.at_gate LIMIT 1)
  FROM gates g WHERE g.gate IS NOT NULL
)
SELECT $1, g.gate FROM gates g
WHERE g.gate IS NOT NULL AND EXISTS (SELECT FROM {schema}.waiting w WHERE w.state = 'blocked' AND w.at_gate = g.gate AND w.queue = $1)
  AND NOT EXISTS (SELECT FROM {schema}.openings o WHERE o.queue = $1 AND o.gate = g.gate AND o.open_at <= {now})

-- name: limited_tenants
-- $1 queue, $2 the tenant after which to begin or NULL, $3 the most, $4 scope of a
-- rate by tenant or NULL, $5 whether runs are counted. Goes round once.
WITH RECURSIVE tenants AS (
  SELECT h.tenant, h.wrapped FROM (
    (SELECT w.tenant, false AS wrapped FROM {schema}.waiting w
     WHERE $2::text IS NULL AND w.queue = $1 AND w.state = 'ready' ORDER BY w.tenant LIMIT 1)
    UNION ALL
    (SELECT w.tenant, false FROM {schema}.waiting w
     WHERE w.queue = $1 AND w.state = 'ready' AND w.tenant > $2 ORDER BY w.tenant LIMIT 1)
    UNION ALL
    (SELECT w.tenant, true FROM {schema}.waiting w
     WHERE w.queue = $1 AND w.state = 'ready' AND w.tenant <= $2 ORDER BY w.tenant LIMIT 1)
    LIMIT 1) h
  UNION ALL
  SELECT h.tenant, h.wrapped FROM tenants t CROSS JOIN LATERAL (
    (SELECT w.tenant, false AS wrapped FROM {schema}.waiting w
     WHERE NOT t.wrapped AND w.queue = $1 AND w.state = 'ready' AND w.tenant > t.tenant ORDER BY w.tenant LIMIT 1)
    UNION ALL
    (SELECT w.tenant, true FROM {schema}.waiting w
     WHERE NOT t.wrapped AND w.queue = $1 AND w.state = 'ready' AND w.tenant <= $2 ORDER BY w.tenant LIMIT 1)
    UNION ALL
    (SELECT w.tenant, true FROM {schema}.waiting w
     WHERE t.wrapped AND w.queue = $1 AND w.state = 'ready' AND w.tenant > t.tenant AND w.tenant <= $2 ORDER BY w.tenant LIMIT 1)
    LIMIT 1) h
)
SELECT t.tenant, {of_tenant} FROM (SELECT tenant FROM tenants LIMIT $3) t

-- define: of_tenant
-- what is running of t.tenant in the queue, and the state of its rate
CASE WHEN $5 THEN (SELECT count(*) FROM {schema}.running r WHERE r.counted AND r.queue = $1 AND r.tenant = t.tenant) ELSE 0 END AS running,
coalesce((SELECT s.state FROM {schema}.rates s WHERE s.scope = $4 AND s.tenant = t.tenant), 0) AS state

-- name: behind_tenants
-- $1 queue, $2 gates, $3 the tenants after which to begin or NULL, $6 the most of
-- each; $4 and $5 as in limited_tenants
SELECT t.gate, t.tenant, {of_tenant} FROM (
  SELECT g.gate, b.tenant FROM unnest($2::text[], $3::text[]) g(gate, after)
  CROSS JOIN LATERAL (
    WITH RECURSIVE tenants AS (
      SELECT h.tenant, h.wrapped FROM (
        (SELECT w.tenant, false AS wrapped FROM {schema}.waiting w
         WHERE g.after IS NULL AND w.at_gate = g.gate AND w.queue = $1 AND w.state = 'blocked' ORDER BY w.tenant LIMIT 1)
        UNION ALL
        (SELECT w.tenant, false FROM {schema}.waiting w
         WHERE w.at_gate = g.gate AND w.queue = $1 AND w.state = 'blocked' AND w.tenant > g.after ORDER BY w.tenant LIMIT 1)
        UNION ALL
        (SELECT w.tenant, true FROM {schema}.waiting w
         WHERE w.at_gate = g.gate AND w.queue = $1 AND w.state = 'blocked' AND w.tenant <= g.after ORDER BY w.tenant LIMIT 1)
        LIMIT 1) h
      UNION ALL
      SELECT h.tenant, h.wrapped FROM tenants t CROSS JOIN LATERAL (
        (SELECT w.tenant, false AS wrapped FROM {schema}.waiting w
         WHERE NOT t.wrapped AND w.at_gate = g.gate AND w.queue = $1 AND w.state = 'blocked' AND w.tenant > t.tenant ORDER BY w.tenant LIMIT 1)
        UNION ALL
        (SELECT w.tenant, true FROM {schema}.waiting w
         WHERE NOT t.wrapped AND w.at_gate = g.gate AND w.queue = $1 AND w.state = 'blocked' AND w.tenant <= g.after ORDER BY w.tenant LIMIT 1)
        UNION ALL
        (SELECT w.tenant, true FROM {schema}.waiting w
         WHERE t.wrapped AND w.at_gate = g.gate AND w.queue = $1 AND w.state = 'blocked' AND w.tenant > t.tenant AND w.tenant <= g.after
         ORDER BY w.tenant LIMIT 1)
        LIMIT 1) h
    )
    SELECT tenant FROM tenants LIMIT $6) b) t

-- name: limited_ready
-- $1 queue, $2 tenants, $3 the most of each
SELECT NULL::text AS behind, {waiting_run}, coalesce(w.input, (SELECT i.input FROM {schema}.inputs i WHERE i.run_id = w.id)) AS input
FROM unnest($2::text[], $3::integer[]) t(tenant, share) CROSS JOIN LATERAL (
  SELECT * FROM {schema}.waiting w WHERE w.queue = $1 AND w.tenant = t.tenant AND w.state = 'ready'
  ORDER BY w.priority, w.run_at, w.id LIMIT t.share FOR UPDATE SKIP LOCKED) w

-- name: limited_behind
-- $1 queue, $2 gates, $3 tenants, $4 the most of each
SELECT t.gate AS behind, {waiting_run}, coalesce(w.input, (SELECT i.input FROM {schema}.inputs i WHERE i.run_id = w.id)) AS input
FROM unnest($2::text[], $3::text[], $4::integer[]) t(gate, tenant, share) CROSS JOIN LATERAL (
  SELECT * FROM {schema}.waiting w WHERE w.at_gate = t.gate AND w.queue = $1 AND w.tenant = t.tenant AND w.state = 'blocked'
  ORDER BY w.priority, w.run_at, w.id LIMIT t.share FOR UPDATE SKIP LOCKED) w

-- name: at_gates
-- $1 gates, $2 the most that matters of each: how many run there, and one of them
SELECT g.gate, r.n, r.holder FROM unnest($1::text[], $2::integer[]) g(gate, most) CROSS JOIN LATERAL (
  SELECT count(*) AS n, (array_agg(h.id))[1] AS holder FROM (
    SELECT r.id FROM {schema}.running r WHERE r.at_gate = g.gate LIMIT g.most) h) r

-- name: rate_states
-- $1 scopes, of rates that are not by tenant
SELECT u.scope, coalesce((SELECT r.state FROM {schema}.rates r WHERE r.scope = u.scope AND r.tenant = ''), 0)
FROM unnest($1::text[]) u(scope)

-- name: spend_rates
-- $1 scopes, $2 tenants, $3 states
INSERT INTO {schema}.rates (scope, tenant, state) SELECT u.scope, u.tenant, u.state FROM unnest($1::text[], $2::text[], $3::bigint[]) u(scope, tenant, state)
ON CONFLICT (scope, tenant) DO UPDATE SET state = excluded.state

-- name: forget_rates
-- a rate that has been paid for, a minute ago, says what none says
DELETE FROM {schema}.rates WHERE state <= (SELECT (extract(epoch FROM {now} - interval '1 minute') * 1000000)::bigint * 1000)

-- name: limited_take
-- $1 worker, $2 ids, $3 the gates that they hold or NULL, $4 whether their tenants
-- are limited
WITH u AS MATERIALIZED (
  SELECT u.* FROM unnest($2::uuid[], $3::text[], $4::boolean[]) u(id, holds, of_tenant)
), taken AS (
  DELETE FROM {schema}.waiting w USING u WHERE w.id {of_u} RETURNING w.*, u.holds, u.of_tenant
)
INSERT INTO {schema}.running (id, job, queue, tenant, key, priority, attempt, max_attempts, claims, orphans,
  run_at, created_at, started_at, claimed_at, worker, module, parent, enqueued_by, traceparent, error, progress, input, gate, at_gate, counted)
SELECT id, job, queue, tenant, key, coalesce(asked_priority, priority), attempt + 1, max_attempts, claims + 1, orphans,
  run_at, created_at, coalesce(started_at, {now}), {now}, $1, module, parent, enqueued_by, traceparent, error, progress, input,
  gate, holds, CASE WHEN of_tenant THEN true END
FROM taken
RETURNING id, claimed_at

-- name: set_aside
-- $1 ids, $2 gates
UPDATE {schema}.waiting w SET state = 'blocked', at_gate = u.at_gate
FROM unnest($1::uuid[], $2::text[]) u(id, at_gate) WHERE w.id {of_u}

-- name: set_more_aside
-- $1 gate, $2 queue, $3 the most
WITH picked AS MATERIALIZED (
  SELECT w.ctid AS tid FROM {schema}.waiting w WHERE w.gate = $1 AND w.queue = $2 AND w.state = 'ready' LIMIT $3 FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.waiting w SET state = 'blocked', at_gate = $1 FROM picked p WHERE w.ctid = p.tid

-- name: set_lane_aside
-- $1 gate, $2 queue, $3 tenant, $4 job, $5 the most
WITH picked AS MATERIALIZED (
  SELECT w.ctid AS tid FROM {schema}.waiting w WHERE w.queue = $2 AND w.tenant = $3 AND w.state = 'ready' AND w.job = $4
  LIMIT $5 FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.waiting w SET state = 'blocked', at_gate = $1 FROM picked p WHERE w.ctid = p.tid
