-- Whose events are, and publishing by SQL.

-- '' is nobody's in particular. A run gets its tenant's events and those, and a
-- run of no tenant gets all.
ALTER TABLE {schema}.events ADD COLUMN tenant text NOT NULL DEFAULT '' COLLATE "C";

-- What a tenant waits for is found however much another has published.
CREATE INDEX events_tenant ON {schema}.events (topic, tenant, seq);
CREATE INDEX events_tenant_key ON {schema}.events (topic, key, tenant, seq) WHERE key <> '';

DROP INDEX {schema}.waiting_topic;
CREATE INDEX waiting_topic ON {schema}.waiting (topic, event_key, tenant, id) WHERE topic IS NOT NULL;

-- What a transaction has published so far. Its rows become events when it commits,
-- and are gone then: nobody else ever sees one, and a crash leaves none to keep.
CREATE UNLOGGED TABLE {schema}.publishing (
  tx           xid8    NOT NULL,
  nth          integer NOT NULL,
  id           uuid    NOT NULL,
  topic        text    NOT NULL COLLATE "C",
  key          text    NOT NULL COLLATE "C",
  tenant       text    NOT NULL COLLATE "C",
  payload      bytea   NOT NULL,
  published_by text    NOT NULL COLLATE "C",
  keep_ms      bigint  NOT NULL,
  PRIMARY KEY (tx, nth)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- json_problem is what is wrong with a text that the type json may take: readers
-- would not agree on it, or not get to its end. Keys are compared as they are read.
CREATE FUNCTION {schema}.json_problem(payload text) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
  WITH tokens AS (
    SELECT m[1] AS token, n FROM regexp_matches(payload, '("(?:[^"\\]|\\.)*"\s*:|"(?:[^"\\]|\\.)*"|[][{}])', 'g') WITH ORDINALITY t(m, n)
  ), nested AS (
    SELECT token, n, sum(CASE WHEN token IN ('{', '[') THEN 1 WHEN token IN ('}', ']') THEN -1 ELSE 0 END) OVER (ORDER BY n) AS depth FROM tokens
  ), keys AS (
    SELECT rtrim(token, E': \t\r\n') AS key, max(CASE WHEN token = '{' THEN n END) OVER (PARTITION BY depth ORDER BY n) AS object, token LIKE '"%:' AS is_key
    FROM nested
  ), read AS (
    SELECT object, CASE WHEN strpos(key, '\') = 0 THEN key ELSE (
      SELECT string_agg(CASE
        WHEN p[1] ~ '^\\u[dD][89abAB]..\\u' THEN chr(65536 + (('x0000' || substr(p[1], 3, 4))::bit(32)::integer - 55296) * 1024 + ('x0000' || substr(p[1], 9, 4))::bit(32)::integer - 56320)
        WHEN p[1] ~ '^\\u[dD][89a-fA-F]' THEN chr(65533)
        WHEN p[1] ~ '^\\u0000' THEN p[1]
        WHEN p[1] ~ '^\\u' THEN chr(('x0000' || substr(p[1], 3, 4))::bit(32)::integer)
        WHEN p[1] ~ '^\\[bfnrt]' THEN translate(substr(p[1], 2), 'bfnrt', E'\b\f\n\r\t')
        WHEN p[1] ~ '^\\' THEN substr(p[1], 2)
        ELSE p[1] END, '' ORDER BY n)
      FROM regexp_matches(key, '(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]+)', 'g') WITH ORDINALITY q(p, n)) END AS key
    FROM keys WHERE is_key
  )
  SELECT CASE
    WHEN (SELECT max(depth) FROM nested) > 1000 THEN 'nested deeper than 1000'
    WHEN EXISTS (SELECT FROM read GROUP BY object, key HAVING count(*) > 1) THEN 'a key is there twice'
  END
$$;

-- event_problem is what is wrong with an event, in the words of the other doors.
CREATE FUNCTION {schema}.event_problem(topic text, payload text, key text, tenant text, keep interval, published_by text)
RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
#variable_conflict use_variable
DECLARE
  wrong text;
BEGIN
  wrong := CASE
    WHEN topic IS NULL OR octet_length(topic) NOT BETWEEN 1 AND 255 OR topic ~ '[\u0001-\u001f\u007f-\u009f]'
      THEN 'the topic is none: it has 1 to 255 bytes of UTF-8, without control characters'
    WHEN octet_length(key) > 255 OR key ~ '[\u0001-\u001f\u007f-\u009f]'
      THEN 'the key is none: it has at most 255 bytes of UTF-8, without control characters'
    WHEN octet_length(payload) > 1048576 THEN format('the payload has %s bytes, and at most 1048576 are taken', octet_length(payload))
    WHEN keep < interval '1 millisecond' OR keep > interval '3650 days' THEN 'an event can be kept for 1ms to ten years'
    WHEN octet_length(tenant) > 255 THEN 'a tenant has at most 255 bytes'
    WHEN octet_length(published_by) > 255 THEN 'who publishes is no text of at most 255 bytes'
  END;
  -- Depth first: the server's own parser gives up with words about its stack.
  IF wrong IS NULL AND payload ~ '[[{]' THEN
    wrong := 'the payload is refused: ' || {schema}.json_problem(payload);
  END IF;
  IF wrong IS NULL THEN
    PERFORM payload::json;
  END IF;
  RETURN wrong;
END $$;

-- add_event publishes an event, whose topic is locked: it answers a row for each
-- run that it wakes, or one with neither; seq is NULL if its id was published
-- before. It is the statement publish, for those who may not run that.
CREATE FUNCTION {schema}.add_event(id uuid, topic text, key text, tenant text, payload bytea, published_by text, keep_ms bigint)
RETURNS TABLE (seq bigint, published_at timestamptz, woken_queue text, woken_tenant text, woken_priority integer)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  moment constant timestamptz := date_trunc('milliseconds', clock_timestamp());
BEGIN
  RETURN QUERY
  WITH added AS (
    INSERT INTO {schema}.events AS e (id, topic, key, tenant, payload, published_by, published_at, expires_at)
    VALUES (add_event.id, add_event.topic, add_event.key, add_event.tenant, add_event.payload, add_event.published_by,
      moment, moment + add_event.keep_ms * interval '1 millisecond')
    ON CONFLICT ON CONSTRAINT events_pkey DO UPDATE SET seq = excluded.seq, topic = excluded.topic, key = excluded.key, tenant = excluded.tenant,
      payload = excluded.payload, run_id = excluded.run_id, published_by = excluded.published_by, published_at = excluded.published_at,
      expires_at = excluded.expires_at
      WHERE e.expires_at <= moment
    RETURNING e.seq, e.published_at
  ), due AS (
    SELECT w.id FROM (
      SELECT p.id FROM {schema}.waiting p WHERE add_event.tenant = '' AND p.topic = add_event.topic AND p.event_key = ''
      UNION ALL
      SELECT p.id FROM {schema}.waiting p WHERE add_event.tenant = '' AND p.topic = add_event.topic AND p.event_key = add_event.key AND add_event.key <> ''
      UNION ALL
      SELECT p.id FROM {schema}.waiting p WHERE add_event.tenant <> '' AND p.topic = add_event.topic AND p.event_key = ''
        AND p.tenant = ANY (ARRAY['', add_event.tenant])
      UNION ALL
      SELECT p.id FROM {schema}.waiting p WHERE add_event.tenant <> '' AND p.topic = add_event.topic AND p.event_key = add_event.key AND add_event.key <> ''
        AND p.tenant = ANY (ARRAY['', add_event.tenant])
    ) u JOIN {schema}.waiting w ON w.id = ANY (ARRAY[u.id])
    WHERE EXISTS (SELECT FROM added) AND w.topic = add_event.topic AND w.state = 'suspended' AND w.run_at >= moment
    ORDER BY w.id FOR UPDATE OF w
  ), told AS (
    UPDATE {schema}.steps s SET status = 'completed', output = add_event.payload, place = (SELECT a.seq FROM added a), finished_at = moment
    FROM due u WHERE s.run_id = ANY (ARRAY[u.id]) AND s.kind = 'wait' AND s.status = 'waiting'
  ), woken AS (
    UPDATE {schema}.waiting w SET state = 'ready', run_at = moment, topic = NULL, event_key = NULL
    FROM due u WHERE w.id = ANY (ARRAY[u.id]) RETURNING w.queue, w.tenant, w.priority
  )
  SELECT a.seq, a.published_at, w.queue, w.tenant, w.priority::integer
  FROM (VALUES (1)) one LEFT JOIN added a ON true LEFT JOIN woken w ON true;
END $$;

-- publish publishes an event with the caller's transaction, and answers its id. It
-- runs with the rights of the schema's owner, so that its caller needs none but to
-- execute it.
--
-- The event gets its place in the order of its topic when the transaction commits,
-- and the runs that wait for it are ready with that commit. Until then nothing is
-- locked, so that a long transaction keeps nobody waiting.
CREATE OR REPLACE FUNCTION {schema}.publish(
  topic        text,
  payload      text     DEFAULT 'null',
  key          text     DEFAULT NULL,
  tenant       text     DEFAULT NULL,
  keep         interval DEFAULT NULL,
  published_by text     DEFAULT NULL,
  id           uuid     DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  moment constant timestamptz := clock_timestamp();
  micros constant bigint := extract(epoch FROM moment) * 1000000;
  before integer;
  wrong  text;
BEGIN
  payload := coalesce(payload, 'null');
  keep := coalesce(keep, interval '7 days');
  wrong := {schema}.event_problem(topic, payload, key, tenant, keep, published_by);
  -- Its commit would not see a run that has begun to wait since the transaction did.
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    wrong := 'an event is published in a transaction that is READ COMMITTED, and this one is not';
  END IF;
  SELECT p.nth INTO before FROM {schema}.publishing p WHERE p.tx = pg_current_xact_id() ORDER BY p.nth DESC LIMIT 1;
  IF before >= 10000 THEN
    wrong := 'a transaction publishes at most 10000 events';
  END IF;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'runner.publish: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  id := coalesce(id, (lpad(to_hex(micros / 1000), 12, '0') || to_hex(28672 + (micros % 1000) * 4096 / 1000)
    || replace(substr(gen_random_uuid()::text, 20), '-', ''))::uuid);
  INSERT INTO {schema}.publishing (tx, nth, id, topic, key, tenant, payload, published_by, keep_ms)
  VALUES (pg_current_xact_id(), coalesce(before, 0) + 1, id, topic, coalesce(key, ''), replace(coalesce(tenant, ''), E'\x01', E'\x01\x02'),
    convert_to(payload, 'UTF8'), replace(left(coalesce(published_by, session_user::text), 255), E'\x01', E'\x01\x02'),
    extract(epoch FROM (moment + keep) - moment) * 1000);
  RETURN id;
END $$;

-- The same with a payload of a JSON type. json keeps its text; jsonb does not: it
-- has no NUL, no second key of a name, and its own idea of numbers and order.
CREATE OR REPLACE FUNCTION {schema}.publish(
  topic        text,
  payload      json,
  key          text     DEFAULT NULL,
  tenant       text     DEFAULT NULL,
  keep         interval DEFAULT NULL,
  published_by text     DEFAULT NULL,
  id           uuid     DEFAULT NULL
) RETURNS uuid LANGUAGE sql VOLATILE
RETURN {schema}.publish(topic, payload::text, key, tenant, keep, published_by, id);

CREATE OR REPLACE FUNCTION {schema}.publish(
  topic        text,
  payload      jsonb,
  key          text     DEFAULT NULL,
  tenant       text     DEFAULT NULL,
  keep         interval DEFAULT NULL,
  published_by text     DEFAULT NULL,
  id           uuid     DEFAULT NULL
) RETURNS uuid LANGUAGE sql VOLATILE
RETURN {schema}.publish(topic, payload::text, key, tenant, keep, published_by, id);

-- publish_staged makes what the transaction has published events, as it commits:
-- all of it with the first row, so that topics are locked in one order.
CREATE FUNCTION {schema}.publish_staged() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  bucket bigint;
  event  record;
  queues text[] := '{}';
BEGIN
  FOR bucket IN SELECT DISTINCT hashtextextended(p.topic, 0) & 127 AS b FROM {schema}.publishing p WHERE p.tx = pg_current_xact_id() ORDER BY b LOOP
    PERFORM pg_advisory_xact_lock(hashtextextended('runner.events.' || {schema_literal}, bucket));
  END LOOP;
  FOR event IN SELECT * FROM {schema}.publishing p WHERE p.tx = pg_current_xact_id() ORDER BY p.nth LOOP
    queues := queues || ARRAY(
      SELECT DISTINCT a.woken_queue FROM {schema}.add_event(event.id, event.topic, event.key, event.tenant, event.payload, event.published_by, event.keep_ms) a
      WHERE a.woken_queue IS NOT NULL);
  END LOOP;
  DELETE FROM {schema}.publishing p WHERE p.tx = pg_current_xact_id();
  IF queues <> '{}' AND has_function_privilege('pg_catalog.pg_notify(text, text)', 'EXECUTE') THEN
    PERFORM pg_notify({schema_literal} || '.wake', q) FROM (SELECT DISTINCT unnest(queues) AS q) told;
  END IF;
  RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER publish_staged AFTER INSERT ON {schema}.publishing DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (NEW.nth = 1) EXECUTE FUNCTION {schema}.publish_staged();

ALTER TABLE {schema}.publishing ENABLE ALWAYS TRIGGER publish_staged;

-- publish_now publishes an event at once, for a program that has no transaction of
-- its own and a role that may only publish. It answers as add_event does, and of an
-- id that was published before how that was.
CREATE FUNCTION {schema}.publish_now(topic text, payload text, key text, tenant text, keep interval, published_by text, id uuid)
RETURNS TABLE (seq bigint, published_at timestamptz, deduped boolean, woken_queue text, woken_tenant text, woken_priority integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  wrong  constant text := {schema}.event_problem(topic, payload, key, tenant, keep, published_by);
  moment constant timestamptz := clock_timestamp();
BEGIN
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'runner.publish: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended('runner.events.' || {schema_literal}, hashtextextended(topic, 0) & 127));
  RETURN QUERY SELECT coalesce(a.seq, e.seq), coalesce(a.published_at, e.published_at), a.seq IS NULL, a.woken_queue, a.woken_tenant, a.woken_priority
    FROM {schema}.add_event(id, topic, key, replace(tenant, E'\x01', E'\x01\x02'), convert_to(payload, 'UTF8'),
      replace(published_by, E'\x01', E'\x01\x02'), (extract(epoch FROM (moment + keep) - moment) * 1000)::bigint) a
    LEFT JOIN {schema}.events e ON a.seq IS NULL AND e.id = publish_now.id;
END $$;

-- Whoever may publish is said with GRANT.
DO $do$
DECLARE f regprocedure;
BEGIN
  FOR f IN SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = {schema_literal} AND p.proname IN ('publish', 'publish_now', 'publish_staged', 'add_event', 'event_problem', 'json_problem')
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
  END LOOP;
END $do$;
