-- Events, staged in the order of the runs beside them.

ALTER TABLE {schema}.outbox ALTER COLUMN job DROP NOT NULL;
ALTER TABLE {schema}.outbox ADD COLUMN topic text COLLATE "C", ADD COLUMN keep_ms bigint;
-- A row with a topic is an event: its key, tenant, input and enqueued_by are the event's.
ALTER TABLE {schema}.outbox ADD CONSTRAINT outbox_what CHECK ((job IS NULL) <> (topic IS NULL));

-- publish stages an event in the caller's transaction and returns its id, with the
-- rights of the schema's owner. Where the queue is in this very schema its own
-- function stays, which publishes with the commit instead.
DO $do$
DECLARE
  f    regprocedure;
  type text;
BEGIN
  IF to_regclass('{schema}.publishing') IS NOT NULL THEN
    RETURN;
  END IF;
  EXECUTE $f$
CREATE FUNCTION {schema}.publish(
  topic        text,
  payload      text     DEFAULT 'null',
  key          text     DEFAULT NULL,
  tenant       text     DEFAULT NULL,
  keep         interval DEFAULT NULL,
  published_by text     DEFAULT NULL,
  id           uuid     DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $b$
#variable_conflict use_variable
DECLARE
  moment constant timestamptz := clock_timestamp();
  micros constant bigint := extract(epoch FROM moment) * 1000000;
  bytes  bytea;
  slot   text;
  told   text;
  wrong  text;
BEGIN
  payload := coalesce(payload, 'null');
  bytes := convert_to(payload, 'UTF8');
  wrong := CASE
    WHEN topic IS NULL OR octet_length(topic) NOT BETWEEN 1 AND 255 OR topic ~ '[\u0001-\u001f\u007f-\u009f]'
      THEN 'the topic is none: it has 1 to 255 bytes of UTF-8, without control characters'
    WHEN octet_length(key) > 255 OR key ~ '[\u0001-\u001f\u007f-\u009f]'
      THEN 'the key is none: it has at most 255 bytes of UTF-8, without control characters'
    WHEN octet_length(bytes) > 1048576 THEN format('the payload has %s bytes, and at most 1048576 are taken', octet_length(bytes))
    WHEN keep < interval '1 millisecond' OR keep > interval '3650 days' THEN 'an event can be kept for 1ms to ten years'
    WHEN octet_length(tenant) > 255 THEN 'a tenant has at most 255 bytes'
    WHEN octet_length(published_by) > 255 THEN 'who publishes is no text of at most 255 bytes'
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'runner.publish: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM payload::json;
  id := coalesce(id, (lpad(to_hex(micros / 1000), 12, '0') || to_hex(28672 + (micros % 1000) * 4096 / 1000)
    || replace(substr(gen_random_uuid()::text, 20), '-', ''))::uuid);
  INSERT INTO {schema}.outbox (id, staged_at, topic, keep_ms, input, key, tenant, on_conflict, enqueued_by)
  VALUES (id, moment, topic, extract(epoch FROM (moment + keep) - moment) * 1000, bytes, nullif(key, ''), nullif(tenant, ''), 'dedupe',
    left(coalesce(published_by, session_user::text), 255))
  ON CONFLICT DO NOTHING;
  -- As enqueue does, and for the same reason.
  slot := floor(micros / 250000)::text;
  told := current_setting('runner.outbox_told', true);
  IF told IS NULL OR split_part(told, ' ', 1) <> slot AND split_part(told, ' ', 2) <> pg_current_xact_id()::text THEN
    IF pg_try_advisory_xact_lock(hashtext({channel_literal}), (micros / 250000 % 2147483647)::integer) THEN
      PERFORM set_config('runner.outbox_told', slot || ' ' || pg_current_xact_id()::text, false);
      PERFORM pg_notify({channel_literal}, '');
    END IF;
  END IF;
  RETURN id;
END $b$
  $f$;
  FOREACH type IN ARRAY ARRAY['json', 'jsonb'] LOOP
    EXECUTE replace($f$
CREATE FUNCTION {schema}.publish(
  topic        text,
  payload      <type>,
  key          text     DEFAULT NULL,
  tenant       text     DEFAULT NULL,
  keep         interval DEFAULT NULL,
  published_by text     DEFAULT NULL,
  id           uuid     DEFAULT NULL
) RETURNS uuid LANGUAGE sql VOLATILE
RETURN {schema}.publish(topic, payload::text, key, tenant, keep, published_by, id)
    $f$, '<type>', type);
  END LOOP;
  FOR f IN SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = {schema_literal} AND p.proname = 'publish'
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
  END LOOP;
END $do$;
