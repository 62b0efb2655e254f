-- name: lock_topics
-- $1 topics. Publishing on a topic and parking for it exclude each other until
-- the transaction ends: neither could see the other's rows before, so an event
-- could fall between them. Topics share 128 locks, as a server has few; they are
-- taken in one order. What follows must be a statement of its own, since one sees
-- what was committed when it began, not when it had the lock.
SELECT pg_advisory_xact_lock(hashtextextended('runner.events.' || {schema_literal}, b))
FROM (SELECT DISTINCT hashtextextended(t, 0) & 127 AS b FROM unnest($1::text[]) t ORDER BY b) locks

-- name: publish
-- $1 id, $2 topic, $3 key, $4 payload, $5 run, $6 by whom, $7 ms to keep it, $8
-- tenant. Its topic is locked. A row per run that it wakes, or one without; no seq
-- if the id was published before. The function add_event does the same.
WITH added AS (
  INSERT INTO {schema}.events AS e (id, topic, key, payload, run_id, published_by, published_at, expires_at, tenant)
  VALUES ($1, $2::text, $3::text, $4::bytea, $5::uuid, $6::text, {now}, {now} + $7::bigint * interval '1 millisecond', $8::text)
  ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, topic = excluded.topic, key = excluded.key, payload = excluded.payload,
    run_id = excluded.run_id, published_by = excluded.published_by, published_at = excluded.published_at, expires_at = excluded.expires_at,
    tenant = excluded.tenant
    WHERE e.expires_at <= {now}
  RETURNING e.seq, e.published_at
), due AS (
  SELECT w.id FROM (
    SELECT p.id FROM {schema}.waiting p WHERE $8 = '' AND p.topic = $2 AND p.event_key = ''
    UNION ALL
    SELECT p.id FROM {schema}.waiting p WHERE $8 = '' AND p.topic = $2 AND p.event_key = $3 AND $3 <> ''
    UNION ALL
    SELECT p.id FROM {schema}.waiting p WHERE $8 <> '' AND p.topic = $2 AND p.event_key = '' AND p.tenant = ANY (ARRAY['', $8])
    UNION ALL
    SELECT p.id FROM {schema}.waiting p WHERE $8 <> '' AND p.topic = $2 AND p.event_key = $3 AND $3 <> '' AND p.tenant = ANY (ARRAY['', $8])
  ) u JOIN {schema}.waiting w ON w.id {of_u}
  WHERE EXISTS (SELECT FROM added) AND w.topic = $2 AND w.state = 'suspended' AND w.run_at >= {now}
  ORDER BY w.id FOR UPDATE OF w
), told AS (
  UPDATE {schema}.steps s SET status = 'completed', output = $4, place = (SELECT seq FROM added), finished_at = {now}
  FROM due u WHERE s.run_id {of_u} AND s.kind = 'wait' AND s.status = 'waiting'
), woken AS (
  UPDATE {schema}.waiting w SET state = 'ready', run_at = {now}, topic = NULL, event_key = NULL
  FROM due u WHERE w.id {of_u} RETURNING w.queue, w.tenant, w.priority
)
SELECT a.seq, a.published_at, w.queue IS NOT NULL, w.queue, w.tenant, w.priority
FROM (VALUES (1)) one LEFT JOIN added a ON true LEFT JOIN woken w ON true

-- name: publish_tx
-- $1 topics, $2 payloads, $3 keys, $4 tenants, $5 ms to keep them, $6 by whom or
-- NULL, $7 ids: in the caller's transaction, in order.
SELECT {schema}.publish(u.topic, u.payload, u.key, u.tenant, u.keep * interval '1 millisecond', u.by_whom, u.id)
FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::uuid[]) WITH ORDINALITY
  u(topic, payload, key, tenant, keep, by_whom, id, ord) ORDER BY ord) u

-- name: publish_now
-- $1 topic, $2 payload, $3 key, $4 tenant, $5 ms to keep it, $6 by whom, $7 id:
-- publish, with its lock, for a role that has no other right.
SELECT p.deduped, p.seq, p.published_at, p.woken_queue IS NOT NULL, p.woken_queue, p.woken_tenant, p.woken_priority
FROM {schema}.publish_now($1, $2, $3, $4, $5::bigint * interval '1 millisecond', $6, $7) p

-- name: find_event
SELECT seq, published_at FROM {schema}.events WHERE id = $1

-- name: save_waits
-- $1 ids, $2 names, $3 wake times or NULL, $4 sleeps in ms, $5 topics, $6 keys,
-- $7 places or NULL for the end of the topic, $8 modules or NULL; of running runs
-- whose rows are locked. A record of a wait that is over stays as it is: writing
-- it again must not have it wait for another event.
WITH u AS MATERIALIZED (
  SELECT u.* FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::text[])
    WITH ORDINALITY u(id, name, wake_at, sleep, topic, key, place, module, ord)
), pin AS (
  UPDATE {schema}.running r SET module = u.module FROM u
  WHERE r.id {of_u} AND u.module IS NOT NULL AND r.module IS DISTINCT FROM u.module
)
INSERT INTO {schema}.steps AS s (run_id, name, ordinal, kind, status, attempts, wake_at, started_at, finished_at, topic, event_key, place)
SELECT id, name, nextval({step_ordinal}), 'wait', 'waiting', 0, coalesce(wake_at, {now} + sleep * interval '1 millisecond'), {now}, {now}, topic, key,
  coalesce(place, (SELECT e.seq FROM {schema}.events e WHERE e.topic = u.topic ORDER BY e.seq DESC LIMIT 1), 0)
FROM (SELECT * FROM u ORDER BY ord) u
ON CONFLICT (run_id, name) DO UPDATE SET kind = excluded.kind, status = excluded.status, wake_at = excluded.wake_at,
  finished_at = excluded.finished_at, topic = excluded.topic, event_key = excluded.event_key, place = excluded.place, error = NULL, output = NULL
  WHERE s.kind <> 'wait' OR s.status NOT IN ('completed', 'timed-out')

-- name: place_waits
-- $1 ids, $2 names, $3 topics, $4 keys, $5 places or NULL for the end of the
-- topic: completes records that a settle wrote. One of a wait that is over stays.
UPDATE {schema}.steps s SET topic = u.topic, event_key = u.key,
  place = coalesce(u.place, (SELECT e.seq FROM {schema}.events e WHERE e.topic = u.topic ORDER BY e.seq DESC LIMIT 1), 0)
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[]) u(id, name, topic, key, place)
WHERE s.run_id {of_u} AND s.name = u.name AND s.status = 'waiting'

-- name: end_waits
-- $1 ids, $2 names of records whose topics are locked: ends those whose event has
-- come, or whose time is over. Answers how each stands.
WITH u AS MATERIALIZED (
  SELECT u.* FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY u(id, name, ord)
), found AS (
  SELECT u.ord, s.run_id AS id, s.name, s.status, s.wake_at, s.place, s.output, s.finished_at, e.seq, e.payload
  FROM u JOIN {schema}.steps s ON s.run_id {of_u} AND s.name = u.name
  LEFT JOIN LATERAL (
    SELECT r.tenant FROM {schema}.running r WHERE r.id {of_u} UNION ALL SELECT w.tenant FROM {schema}.waiting w WHERE w.id {of_u} LIMIT 1
  ) run ON true
  LEFT JOIN LATERAL (
    -- A run of no tenant takes any event; else the first of its tenant's and of
    -- nobody's, each from the index, however many others there are.
    (SELECT e.seq, e.payload FROM {schema}.events e
     WHERE run.tenant = '' AND s.status = 'waiting' AND s.event_key = '' AND e.topic = s.topic
       AND e.seq > s.place AND e.published_at <= s.wake_at AND e.expires_at > {now}
     ORDER BY e.seq LIMIT 1)
    UNION ALL
    (SELECT e.seq, e.payload FROM {schema}.events e
     WHERE run.tenant = '' AND s.status = 'waiting' AND e.key = s.event_key AND e.key <> '' AND e.topic = s.topic
       AND e.seq > s.place AND e.published_at <= s.wake_at AND e.expires_at > {now}
     ORDER BY e.seq LIMIT 1)
    UNION ALL
    (SELECT e.seq, e.payload FROM unnest(ARRAY['', run.tenant]) t, LATERAL (SELECT e.seq, e.payload FROM {schema}.events e
       WHERE run.tenant <> '' AND s.status = 'waiting' AND s.event_key = '' AND e.topic = s.topic AND e.tenant = t
         AND e.seq > s.place AND e.published_at <= s.wake_at AND e.expires_at > {now}
       ORDER BY e.seq LIMIT 1) e)
    UNION ALL
    (SELECT e.seq, e.payload FROM unnest(ARRAY['', run.tenant]) t, LATERAL (SELECT e.seq, e.payload FROM {schema}.events e
       WHERE run.tenant <> '' AND s.status = 'waiting' AND e.key = s.event_key AND e.key <> '' AND e.topic = s.topic AND e.tenant = t
         AND e.seq > s.place AND e.published_at <= s.wake_at AND e.expires_at > {now}
       ORDER BY e.seq LIMIT 1) e)
    ORDER BY 1 LIMIT 1
  ) e ON true
), stands AS (
  SELECT ord, id, name, status = 'waiting' AND (seq IS NOT NULL OR wake_at <= {now}) AS over,
    CASE WHEN status <> 'waiting' THEN status WHEN seq IS NOT NULL THEN 'completed' WHEN wake_at <= {now} THEN 'timed-out' ELSE 'waiting' END AS status,
    coalesce(seq, place) AS place, coalesce(payload, output) AS output,
    CASE WHEN status = 'waiting' THEN {now} ELSE finished_at END AS at
  FROM found
), ended AS (
  UPDATE {schema}.steps s SET status = u.status, place = u.place, output = u.output, finished_at = {now}
  FROM stands u WHERE u.over AND s.run_id {of_u} AND s.name = u.name
)
SELECT ord, status, place, output, at FROM stands

-- name: rest_waits
-- $1 ids, $2 names: of runs that a settle suspended, after end_waits. One whose
-- wait is over is ready, the others are parked.
UPDATE {schema}.waiting w SET
  state = CASE WHEN s.status = 'waiting' THEN 'suspended' ELSE 'ready' END,
  run_at = CASE WHEN s.status = 'waiting' THEN w.run_at ELSE {now} END,
  topic = CASE WHEN s.status = 'waiting' THEN s.topic END,
  event_key = CASE WHEN s.status = 'waiting' THEN s.event_key END
FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY u(id, name, ord) JOIN {schema}.steps s ON s.run_id {of_u} AND s.name = u.name
WHERE w.id {of_u}
RETURNING u.ord, w.state = 'ready', w.run_at, w.queue, w.tenant, w.priority

-- name: pending_event
-- $1 topic, $2 key, $3 place, $4 the run's tenant
SELECT EXISTS (SELECT FROM {schema}.events e WHERE $4::text = '' AND $2::text = '' AND e.topic = $1 AND e.seq > $3::bigint AND e.expires_at > {now})
  OR EXISTS (SELECT FROM {schema}.events e WHERE $4 = '' AND e.key <> '' AND e.key = $2 AND e.topic = $1 AND e.seq > $3 AND e.expires_at > {now})
  OR EXISTS (SELECT FROM {schema}.events e WHERE $4 <> '' AND $2 = '' AND e.topic = $1 AND e.tenant = ANY (ARRAY['', $4]) AND e.seq > $3 AND e.expires_at > {now})
  OR EXISTS (SELECT FROM {schema}.events e WHERE $4 <> '' AND e.key <> '' AND e.key = $2 AND e.topic = $1 AND e.tenant = ANY (ARRAY['', $4])
    AND e.seq > $3 AND e.expires_at > {now})

-- name: list_events
-- $1 topic or '', $2 key or '', $3 before, $4 limit, $5 tenant or ''
SELECT seq, id, topic, key, payload, run_id, published_by, published_at, expires_at, tenant FROM {schema}.events e
WHERE ($1::text = '' OR topic = $1) AND ($2::text = '' OR key = $2) AND ($5::text = '' OR tenant = $5) AND seq < $3::bigint AND expires_at > {now}
ORDER BY seq DESC LIMIT $4

-- name: purge_events
WITH gone AS (
  DELETE FROM {schema}.events WHERE id = ANY (ARRAY(
    SELECT id FROM {schema}.events WHERE expires_at <= {now} ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING 1
)
SELECT count(*) FROM gone
