-- name: insert_run
-- ?1 id, ?2 job, ?3 queue, ?4 tenant, ?5 key, ?6 state, ?7 priority, ?8 max_attempts,
-- ?9 run_at, ?10 created_at, ?11 parent, ?12 enqueued_by, ?13 traceparent, ?14 input,
-- ?15 gate or NULL, ?16 the same if it waits behind it
-- Changes nothing when the id is taken, or the key by a live run.
INSERT INTO runs (id, job, queue, tenant, key, state, priority, max_attempts,
  run_at, created_at, parent, enqueued_by, traceparent, input, gate, at_gate)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
ON CONFLICT DO NOTHING

-- name: insert_payload
INSERT INTO payloads (run, input) VALUES (?1, ?2)

-- name: find_holder
-- ?1 job, ?2 tenant, ?3 key: the namespace of runs_key.
SELECT id, state FROM runs INDEXED BY runs_key
WHERE job = ?1 AND tenant = ?2 AND key = ?3 AND key <> '' AND {live}

-- name: find_state
SELECT state FROM runs INDEXED BY runs_id WHERE id = ?1
