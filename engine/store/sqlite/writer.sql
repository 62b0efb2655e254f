-- name: begin
-- IMMEDIATE: a transaction that begins as a reader can find, when it writes,
-- that another process wrote in between, and no waiting mends that.
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: count_ended
-- ?1 queue, ?2 done, ?3 failed, ?4 dead, ?5 cancelled: changes, not totals, so that
-- two processes add up.
INSERT INTO queues (name, done, failed, dead, cancelled) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name) DO UPDATE SET
  done = done + excluded.done, failed = failed + excluded.failed,
  dead = dead + excluded.dead, cancelled = cancelled + excluded.cancelled

-- name: begin_read
BEGIN DEFERRED
