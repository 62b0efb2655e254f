-- What the functions that publish refuse has the codes of the other doors.

{refusals_1}

CREATE OR REPLACE FUNCTION {schema}.publish(
  topic        text,
  payload      text     DEFAULT 'null',
  key          text     DEFAULT NULL,
  tenant       text     DEFAULT NULL,
  keep         interval DEFAULT NULL,
  published_by text     DEFAULT NULL,
  id           uuid     DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
#variable_conflict use_variable
DECLARE
  moment constant timestamptz := clock_timestamp();
  micros constant bigint := extract(epoch FROM moment) * 1000000;
  before integer;
  wrong  text[];
BEGIN
  payload := coalesce(payload, 'null');
  keep := coalesce(keep, interval '7 days');
  wrong := {schema}.queue_event_refusal(topic, payload, key, tenant, keep, published_by);
  SELECT p.nth INTO before FROM {schema}.publishing p WHERE p.tx = pg_current_xact_id() ORDER BY p.nth DESC LIMIT 1;
  -- The commit of another isolation would not see a run that has begun to wait since
  -- the transaction did.
  IF wrong IS NULL AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    wrong := ARRAY['X_INVALID', 'an event is published in a transaction that is READ COMMITTED, and this one is not', 'begin it so'];
  ELSIF wrong IS NULL AND before >= 10000 THEN
    wrong := ARRAY['X_INVALID', 'a transaction publishes at most 10000 events', 'publish the others in another'];
  END IF;
  IF wrong IS NOT NULL THEN
    PERFORM {schema}.queue_refuse(wrong);
  END IF;
  id := coalesce(id, (lpad(to_hex(micros / 1000), 12, '0') || to_hex(28672 + (micros % 1000) * 4096 / 1000)
    || replace(substr(gen_random_uuid()::text, 20), '-', ''))::uuid);
  INSERT INTO {schema}.publishing (tx, nth, id, topic, key, tenant, payload, published_by, keep_ms)
  VALUES (pg_current_xact_id(), coalesce(before, 0) + 1, id, topic, coalesce(key, ''), replace(coalesce(tenant, ''), E'\x01', E'\x01\x02'),
    convert_to(payload, 'UTF8'), replace(left(coalesce(published_by, session_user::text), 255), E'\x01', E'\x01\x02'),
    extract(epoch FROM (moment + keep) - moment) * 1000);
  RETURN id;
END $$;

CREATE OR REPLACE FUNCTION {schema}.publish_now(topic text, payload text, key text, tenant text, keep interval, published_by text, id uuid)
RETURNS TABLE (seq bigint, published_at timestamptz, deduped boolean, woken_queue text, woken_tenant text, woken_priority integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
#variable_conflict use_variable
DECLARE
  wrong  constant text[] := {schema}.queue_event_refusal(topic, payload, key, tenant, keep, published_by);
  moment constant timestamptz := clock_timestamp();
BEGIN
  IF wrong IS NOT NULL THEN
    PERFORM {schema}.queue_refuse(wrong);
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended('runner.events.' || {schema_literal}, hashtextextended(topic, 0) & 127));
  RETURN QUERY SELECT coalesce(a.seq, e.seq), coalesce(a.published_at, e.published_at), a.seq IS NULL, a.woken_queue, a.woken_tenant, a.woken_priority
    FROM {schema}.add_event(id, topic, key, replace(tenant, E'\x01', E'\x01\x02'), convert_to(payload, 'UTF8'),
      replace(published_by, E'\x01', E'\x01\x02'), (extract(epoch FROM (moment + keep) - moment) * 1000)::bigint) a
    LEFT JOIN {schema}.events e ON a.seq IS NULL AND e.id = publish_now.id;
END $$;

DROP FUNCTION {schema}.event_problem(text, text, text, text, interval, text);
DROP FUNCTION {schema}.json_problem(text);
