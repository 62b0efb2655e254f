-- name: insert_event
-- ?1 id … ?9 tenant, in the order of the columns. Nothing for an id that is there.
INSERT INTO events (id, topic, key, payload, run, published_by, published_at, expires_at, tenant)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING

-- name: event_by_id
SELECT seq, published_at FROM events WHERE id = ?1

-- name: forget_expired_event
-- ?1 id, ?2 now
DELETE FROM events WHERE id = ?1 AND expires_at <= ?2

-- name: waiters
-- ?1 topic, ?2 key, ?3 now: the runs parked for such an event of no tenant whose
-- time is not over.
SELECT seq, queue FROM runs INDEXED BY runs_topic
WHERE topic IS NOT NULL AND topic = ?1 AND event_key = '' AND state = 'suspended' AND run_at >= ?3
UNION ALL
SELECT seq, queue FROM runs INDEXED BY runs_topic
WHERE topic IS NOT NULL AND ?2 <> '' AND topic = ?1 AND event_key = ?2 AND state = 'suspended' AND run_at >= ?3

-- name: tenants_waiters
-- As waiters, for an event of the tenant ?4.
SELECT seq, queue FROM runs INDEXED BY runs_topic
WHERE topic IS NOT NULL AND topic = ?1 AND event_key = '' AND tenant = '' AND state = 'suspended' AND run_at >= ?3
UNION ALL
SELECT seq, queue FROM runs INDEXED BY runs_topic
WHERE topic IS NOT NULL AND topic = ?1 AND event_key = '' AND tenant = ?4 AND state = 'suspended' AND run_at >= ?3
UNION ALL
SELECT seq, queue FROM runs INDEXED BY runs_topic
WHERE topic IS NOT NULL AND ?2 <> '' AND topic = ?1 AND event_key = ?2 AND tenant = '' AND state = 'suspended' AND run_at >= ?3
UNION ALL
SELECT seq, queue FROM runs INDEXED BY runs_topic
WHERE topic IS NOT NULL AND ?2 <> '' AND topic = ?1 AND event_key = ?2 AND tenant = ?4 AND state = 'suspended' AND run_at >= ?3

-- name: tenant_of
SELECT tenant FROM runs WHERE seq = ?1

-- name: ready_run
-- ?1 seq, ?2 now: a parked run has what it waited for.
UPDATE runs SET state = 'ready', run_at = ?2, topic = NULL, event_key = NULL, awaits = NULL WHERE seq = ?1

-- name: end_wait_of
-- ?1 run, ?2 payload, ?3 place, ?4 now: of a parked run, which has one wait.
UPDATE steps SET status = 'completed', output = ?2, place = ?3, finished_at = ?4
WHERE run = ?1 AND kind = 'wait' AND status = 'waiting'

-- name: end_wait
-- ?1 run, ?2 name, ?3 status, ?4 output, ?5 place
UPDATE steps SET status = ?3, output = ?4, place = ?5 WHERE run = ?1 AND name = ?2

-- name: ended_wait
SELECT status, place, output, finished_at FROM steps
WHERE run = ?1 AND name = ?2 AND kind = 'wait' AND (status = 'completed' OR status = 'timed-out')

-- name: place_wait
-- ?1 run, ?2 name, ?3 topic, ?4 key, ?5 place
UPDATE steps SET topic = ?3, event_key = ?4, place = ?5 WHERE run = ?1 AND name = ?2

-- name: park_for_event
-- ?1 seq, ?2 topic, ?3 key
UPDATE runs SET topic = ?2, event_key = ?3 WHERE seq = ?1

-- name: last_of_topic
SELECT coalesce(max(seq), 0) FROM events INDEXED BY events_topic WHERE topic = ?1

-- name: next_of_topic
-- ?1 topic, ?2 place, ?3 latest time, ?4 now: for a run of no tenant.
SELECT seq, payload FROM events INDEXED BY events_topic
WHERE topic = ?1 AND seq > ?2 AND published_at <= ?3 AND expires_at > ?4 ORDER BY seq LIMIT 1

-- name: next_of_key
-- as next_of_topic, ?5 key
SELECT seq, payload FROM events INDEXED BY events_key
WHERE key <> '' AND topic = ?1 AND key = ?5 AND seq > ?2 AND published_at <= ?3 AND expires_at > ?4 ORDER BY seq LIMIT 1

-- name: tenants_next_of_topic
-- As next_of_topic, ?5 tenant: the first of its events, however many others there are.
SELECT seq, payload FROM events INDEXED BY events_tenant
WHERE topic = ?1 AND tenant = ?5 AND seq > ?2 AND published_at <= ?3 AND expires_at > ?4 ORDER BY seq LIMIT 1

-- name: tenants_next_of_key
-- as tenants_next_of_topic, ?6 key
SELECT seq, payload FROM events INDEXED BY events_tenant_key
WHERE key <> '' AND topic = ?1 AND key = ?6 AND tenant = ?5 AND seq > ?2 AND published_at <= ?3 AND expires_at > ?4 ORDER BY seq LIMIT 1

-- name: list_events
-- ?1 before, ?2 key or '', ?3 now, ?4 limit, ?5 tenant or ''
SELECT seq, id, topic, key, payload, run, published_by, published_at, expires_at, tenant FROM events
WHERE seq < ?1 AND (?2 = '' OR key = ?2) AND (?5 = '' OR tenant = ?5) AND expires_at > ?3 ORDER BY seq DESC LIMIT ?4

-- name: list_topic
-- as list_events, ?6 topic
SELECT seq, id, topic, key, payload, run, published_by, published_at, expires_at, tenant FROM events INDEXED BY events_topic
WHERE topic = ?6 AND seq < ?1 AND (?2 = '' OR key = ?2) AND (?5 = '' OR tenant = ?5) AND expires_at > ?3 ORDER BY seq DESC LIMIT ?4

-- name: purge_events
-- ?1 now, ?2 limit
DELETE FROM events WHERE seq IN (SELECT seq FROM events INDEXED BY events_expiry WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)

-- name: insert_invocation
INSERT INTO invocations (child, parent, name, abandon, keep) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: set_child
-- ?1 run, ?2 name, ?3 child
UPDATE steps SET child = ?3 WHERE run = ?1 AND name = ?2

-- name: invocation
SELECT parent, name FROM invocations WHERE child = ?1

-- name: invoke_depth
-- ?1 run, ?2 the most that is counted
WITH RECURSIVE up (parent, n) AS (
  SELECT parent, 1 FROM invocations WHERE child = ?1 AND ?2 > 0
  UNION ALL
  SELECT i.parent, up.n + 1 FROM up JOIN runs r ON r.seq = up.parent JOIN invocations i ON i.child = r.id WHERE up.n < ?2
)
SELECT count(*) FROM up

-- name: delete_invocation
DELETE FROM invocations WHERE child = ?1

-- name: live_children
SELECT count(*) FROM invocations INDEXED BY invocations_parent WHERE parent = ?1

-- name: park_for_children
-- ?1 seq, ?2 how many may be live
UPDATE runs SET awaits = ?2 WHERE seq = ?1

-- name: parked_for_children
-- ?1 seq, ?2 how many are live
SELECT queue FROM runs WHERE seq = ?1 AND state = 'suspended' AND awaits >= ?2

-- name: child_end
SELECT state, output, error_code, error_message, error_fix, error_stack FROM runs INDEXED BY runs_id WHERE id = ?1

-- name: end_invoke
-- ?1 run, ?2 name, ?3 child, ?4 status, ?5 output, ?6 now, ?7 … ?10 error
UPDATE steps SET status = ?4, output = ?5, finished_at = ?6, error_code = ?7, error_message = ?8, error_fix = ?9, error_stack = ?10
WHERE run = ?1 AND name = ?2 AND status = 'waiting' AND child = ?3

-- name: children_of
SELECT child, name, abandon, keep FROM invocations INDEXED BY invocations_parent WHERE parent = ?1 ORDER BY child

-- name: late_children
-- ?1 parent, ?2 now: live children whose time is over.
SELECT i.child, i.name, i.abandon, i.keep FROM invocations i INDEXED BY invocations_parent
JOIN steps s ON s.run = i.parent AND s.name = i.name
WHERE i.parent = ?1 AND s.status = 'waiting' AND s.wake_at <= ?2 ORDER BY i.child

-- name: next_late
-- ?1 parent
SELECT min(s.wake_at) FROM invocations i INDEXED BY invocations_parent JOIN steps s ON s.run = i.parent AND s.name = i.name
WHERE i.parent = ?1 AND s.status = 'waiting'
