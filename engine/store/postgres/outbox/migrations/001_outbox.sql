-- The outbox of an application's database: what is staged here commits or
-- vanishes with the application's own rows, and a relay publishes it.

CREATE TABLE {schema}.outbox (
  id           uuid        NOT NULL PRIMARY KEY,             -- of the row, and of the run
  seq          bigint      NOT NULL GENERATED ALWAYS AS IDENTITY, -- the order of staging
  state        text        NOT NULL DEFAULT 'staged' COLLATE "C"
    CHECK (state IN ('staged', 'published', 'rejected')),
  staged_at    timestamptz NOT NULL,
  job          text        NOT NULL COLLATE "C",
  input        bytea       NOT NULL, -- UTF-8, as it was given: a JSON type would lose some of it
  key          text        COLLATE "C",
  tenant       text        COLLATE "C",
  run_at       timestamptz,
  delay_ms     bigint,               -- from staged_at
  priority     integer,
  max_attempts integer,
  on_conflict  text        NOT NULL COLLATE "C",
  enqueued_by  text        COLLATE "C",
  traceparent  text        COLLATE "C",
  claims       bigint      NOT NULL DEFAULT 0, -- never reset
  claimed_by   text        COLLATE "C",        -- a relay
  leased_until timestamptz,
  settled_at   timestamptz,          -- published or rejected
  run_id       uuid,                 -- the run that stands for it
  code         text        COLLATE "C",
  reason       text        COLLATE "C"
) WITH (
  fillfactor = 60, -- a claim rewrites the row, best on its page
  autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 10000
);

CREATE INDEX outbox_staged ON {schema}.outbox (seq) WHERE state = 'staged';
CREATE INDEX outbox_rejected ON {schema}.outbox (id) WHERE state = 'rejected';
CREATE INDEX outbox_published ON {schema}.outbox (settled_at) WHERE state = 'published';

-- enqueue stages one run in the caller's transaction and returns its id. It runs
-- with the rights of the schema's owner, so that its caller needs none but to
-- execute it.
--
-- It refuses what is wrong whatever the jobs are: that is a mistake in the
-- caller's code, and better found there. What only the manifest can tell (the
-- job, its schema, its tenant) the relay checks.
CREATE FUNCTION {schema}.enqueue(
  job          text,
  input        text        DEFAULT 'null',
  key          text        DEFAULT NULL,
  tenant       text        DEFAULT NULL,
  run_at       timestamptz DEFAULT NULL,
  delay        interval    DEFAULT NULL,
  priority     integer     DEFAULT NULL,
  max_attempts integer     DEFAULT NULL,
  on_conflict  text        DEFAULT 'dedupe',
  enqueued_by  text        DEFAULT NULL,
  traceparent  text        DEFAULT NULL,
  id           uuid        DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  moment   constant timestamptz := clock_timestamp();
  micros   constant bigint := extract(epoch FROM moment) * 1000000;
  bytes    bytea;
  delay_ms bigint;
  slot     text;
  told     text;
  wrong    text;
BEGIN
  input := coalesce(input, 'null');
  on_conflict := coalesce(on_conflict, 'dedupe');
  bytes := convert_to(input, 'UTF8');
  delay_ms := floor(extract(epoch FROM (moment + delay) - moment) * 1000);
  wrong := CASE
    WHEN job IS NULL OR job = '' THEN 'a job must be named'
    WHEN octet_length(job) > 255 THEN 'the name of a job has at most 255 bytes'
    WHEN octet_length(bytes) > 1048576 THEN format('the input has %s bytes, and at most 1048576 are taken', octet_length(bytes))
    WHEN octet_length(key) > 512 THEN 'an idempotency key has at most 512 bytes'
    WHEN octet_length(tenant) > 255 THEN 'a tenant has at most 255 bytes'
    WHEN run_at IS NOT NULL AND delay IS NOT NULL THEN 'run_at and delay are both given; say one of them'
    WHEN run_at NOT BETWEEN '1970-01-01 00:00:00+00' AND '9000-01-01 00:00:00+00' THEN 'run_at is no instant a run can be due at'
    WHEN delay_ms NOT BETWEEN 0 AND 315360000000 THEN 'a delay is between nothing and ten years'
    WHEN priority NOT BETWEEN -100 AND 100 THEN 'a priority is between -100 and 100'
    WHEN max_attempts < 1 THEN 'at least one attempt must be allowed'
    WHEN on_conflict NOT IN ('dedupe', 'reject') THEN 'on_conflict is ''dedupe'' or ''reject'''
    WHEN octet_length(enqueued_by) > 255 THEN 'enqueued_by has at most 255 bytes'
    WHEN octet_length(traceparent) > 255 THEN 'a traceparent has 55 bytes'
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'runner.enqueue: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM input::json;

  -- A version 7 UUID: the time in milliseconds, its fraction in twelve bits, and
  -- chance. Ids made one after the other sort so.
  id := coalesce(id, (lpad(to_hex(micros / 1000), 12, '0') || to_hex(28672 + (micros % 1000) * 4096 / 1000)
    || replace(substr(gen_random_uuid()::text, 20), '-', ''))::uuid);

  INSERT INTO {schema}.outbox (id, staged_at, job, input, key, tenant, run_at, delay_ms, priority, max_attempts,
    on_conflict, enqueued_by, traceparent)
  VALUES (id, moment, job, bytes, nullif(key, ''), nullif(tenant, ''), run_at, delay_ms, priority, max_attempts,
    on_conflict, left(coalesce(enqueued_by, session_user::text), 255), nullif(traceparent, ''))
  ON CONFLICT DO NOTHING;

  -- Commits that notify wait for each other, all over the server. So a session
  -- tells the relay once in a quarter of a second and once in a transaction, and
  -- is silent while another that is about to tell in the same quarter is open.
  -- The relay looks again by itself, soon after it has found something.
  slot := floor(micros / 250000)::text;
  told := current_setting('runner.outbox_told', true);
  IF told IS NULL OR split_part(told, ' ', 1) <> slot AND split_part(told, ' ', 2) <> pg_current_xact_id()::text THEN
    IF pg_try_advisory_xact_lock(hashtext({channel_literal}), (micros / 250000 % 2147483647)::integer) THEN
      PERFORM set_config('runner.outbox_told', slot || ' ' || pg_current_xact_id()::text, false);
      PERFORM pg_notify({channel_literal}, '');
    END IF;
  END IF;
  RETURN id;
END $$;

-- The same with an input of a JSON type. json keeps its text; jsonb does not: it
-- has no NUL, no second key of a name, and its own idea of numbers and order.
CREATE FUNCTION {schema}.enqueue(
  job          text,
  input        json,
  key          text        DEFAULT NULL,
  tenant       text        DEFAULT NULL,
  run_at       timestamptz DEFAULT NULL,
  delay        interval    DEFAULT NULL,
  priority     integer     DEFAULT NULL,
  max_attempts integer     DEFAULT NULL,
  on_conflict  text        DEFAULT 'dedupe',
  enqueued_by  text        DEFAULT NULL,
  traceparent  text        DEFAULT NULL,
  id           uuid        DEFAULT NULL
) RETURNS uuid LANGUAGE sql VOLATILE
RETURN {schema}.enqueue(job, input::text, key, tenant, run_at, delay, priority, max_attempts, on_conflict, enqueued_by, traceparent, id);

CREATE FUNCTION {schema}.enqueue(
  job          text,
  input        jsonb,
  key          text        DEFAULT NULL,
  tenant       text        DEFAULT NULL,
  run_at       timestamptz DEFAULT NULL,
  delay        interval    DEFAULT NULL,
  priority     integer     DEFAULT NULL,
  max_attempts integer     DEFAULT NULL,
  on_conflict  text        DEFAULT 'dedupe',
  enqueued_by  text        DEFAULT NULL,
  traceparent  text        DEFAULT NULL,
  id           uuid        DEFAULT NULL
) RETURNS uuid LANGUAGE sql VOLATILE
RETURN {schema}.enqueue(job, input::text, key, tenant, run_at, delay, priority, max_attempts, on_conflict, enqueued_by, traceparent, id);

-- Whoever may call it is said with GRANT.
DO $do$
DECLARE f regprocedure;
BEGIN
  FOR f IN SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = {schema_literal} AND p.proname = 'enqueue'
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
  END LOOP;
END $do$;
