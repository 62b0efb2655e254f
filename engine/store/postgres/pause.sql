-- name: set_pause
-- $1 kind, $2 name, $3 whether to resume, $4 by, $5 reason. Answers a row if that
-- changed anything.
INSERT INTO {schema}.pauses AS p (kind, name, paused_at, changed_at, changed_by, reason)
SELECT $1, $2, CASE WHEN NOT $3 THEN {now} END, {now}, $4, $5
WHERE NOT $3 OR EXISTS (SELECT FROM {schema}.pauses o WHERE o.kind = $1 AND o.name = $2)
ON CONFLICT (kind, name) DO UPDATE SET paused_at = excluded.paused_at, changed_at = excluded.changed_at,
  changed_by = excluded.changed_by, reason = excluded.reason
WHERE (p.paused_at IS NULL) <> $3
RETURNING true

-- name: list_pauses
SELECT kind, name, paused_at, changed_at, changed_by, reason FROM {schema}.pauses ORDER BY kind, name

-- name: open_gate
-- $1 gate: claims of every queue of which runs wait behind it look there
INSERT INTO {schema}.openings (queue, gate)
WITH RECURSIVE behind(queue) AS (
  (SELECT w.queue FROM {schema}.waiting w WHERE w.state = 'blocked' AND w.at_gate = $1 ORDER BY w.queue LIMIT 1)
  UNION ALL
  SELECT (SELECT w.queue FROM {schema}.waiting w WHERE w.state = 'blocked' AND w.at_gate = $1 AND w.queue > b.queue ORDER BY w.queue LIMIT 1)
  FROM behind b WHERE b.queue IS NOT NULL
)
SELECT queue, $1 FROM behind WHERE queue IS NOT NULL
RETURNING queue

-- name: age
-- $1 queue, $2 ms that they have waited, $3 the most, $4 the priority to be, $5 the
-- most lanes that are looked at, which are pairs of tenant and priority
WITH RECURSIVE lanes AS (
  (SELECT w.tenant, w.priority, w.run_at FROM {schema}.waiting w WHERE w.queue = $1 AND w.state = 'ready'
   ORDER BY w.tenant, w.priority, w.run_at LIMIT 1)
  UNION ALL
  SELECT n.tenant, n.priority, n.run_at FROM lanes l CROSS JOIN LATERAL (
    SELECT w.tenant, w.priority, w.run_at FROM {schema}.waiting w
    WHERE w.queue = $1 AND w.state = 'ready' AND (w.tenant, w.priority) > (l.tenant, l.priority)
    ORDER BY w.tenant, w.priority, w.run_at LIMIT 1) n
), old AS (
  SELECT o.tid FROM (SELECT * FROM lanes LIMIT $5) l CROSS JOIN LATERAL (
    SELECT w.ctid AS tid FROM {schema}.waiting w
    WHERE l.priority > $4::smallint AND l.run_at <= {now} - $2::bigint * interval '1 millisecond'
      AND w.queue = $1 AND w.tenant = l.tenant AND w.priority = l.priority AND w.state = 'ready'
      AND w.run_at <= {now} - $2::bigint * interval '1 millisecond'
    ORDER BY w.run_at LIMIT $3 FOR UPDATE SKIP LOCKED) o
), behind AS (
  SELECT w.ctid AS tid FROM {schema}.waiting w
  WHERE w.state = 'blocked' AND w.queue = $1 AND w.priority > $4::smallint AND w.run_at <= {now} - $2::bigint * interval '1 millisecond'
  LIMIT $3 FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
  SELECT tid FROM (SELECT tid FROM old UNION ALL SELECT tid FROM behind) a LIMIT $3
)
UPDATE {schema}.waiting w SET asked_priority = w.priority, priority = $4::smallint FROM picked p WHERE w.ctid = p.tid RETURNING w.tenant, w.state, w.run_at
