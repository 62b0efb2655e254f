-- What enqueue and publish refuse has the codes of the other doors.

{refusals_1}

CREATE OR REPLACE FUNCTION {schema}.enqueue(
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
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
#variable_conflict use_variable
DECLARE
  moment   constant timestamptz := clock_timestamp();
  micros   constant bigint := extract(epoch FROM moment) * 1000000;
  bytes    bytea;
  delay_ms bigint;
  slot     text;
  told     text;
  wrong    text[];
BEGIN
  input := coalesce(input, 'null');
  on_conflict := coalesce(on_conflict, 'dedupe');
  bytes := convert_to(input, 'UTF8');
  -- What is far out is not computed with, and months have the days that they have.
  IF delay BETWEEN interval '0' AND interval '3660 days' THEN
    delay_ms := floor(extract(epoch FROM (moment + delay) - moment) * 1000);
  END IF;
  IF job IS NULL OR job = '' THEN
    wrong := ARRAY['X_JOB_UNKNOWN', 'a job must be named', 'name one that the queue''s jobs.toml declares'];
  ELSIF octet_length(job) > 255 THEN
    wrong := ARRAY['X_JOB_UNKNOWN', format('the name of the job has %s bytes', octet_length(job)), 'say it in at most 255'];
  ELSE
    wrong := {schema}.outbox_json_refusal('X_JOB_INPUT_INVALID', 'the input', input, false);
  END IF;
  IF wrong IS NULL THEN
    wrong := CASE
      WHEN octet_length(key) > 512 THEN ARRAY['X_JOB_KEY_INVALID', format('the idempotency key has %s bytes', octet_length(key)), 'say it in at most 512']
      WHEN octet_length(tenant) > 255 THEN ARRAY['X_JOB_KEY_INVALID', format('the tenant has %s bytes', octet_length(tenant)), 'say it in at most 255']
      WHEN octet_length(enqueued_by) > 255 THEN ARRAY['X_INVALID', format('the text of enqueued_by has %s bytes', octet_length(enqueued_by)), 'say it in at most 255']
      WHEN octet_length(traceparent) > 255 THEN ARRAY['X_INVALID', format('the traceparent has %s bytes', octet_length(traceparent)), 'a valid one has 55']
      WHEN priority NOT BETWEEN -100 AND 100
        THEN ARRAY['X_INVALID', format('a priority of %s is outside -100 to 100', priority), 'say one from -100 to 100, or leave it out']
      WHEN max_attempts NOT BETWEEN 1 AND 10000
        THEN ARRAY['X_INVALID', format('%s attempts cannot be made', max_attempts), 'say a number from 1 to 10000, or leave it out']
      WHEN delay < interval '0' OR delay_ms < 0 THEN ARRAY['X_INVALID', 'a delay lies in the past', 'leave it out to run at once']
      WHEN delay > interval '3660 days' OR delay_ms > 315360000000 THEN ARRAY['X_INVALID', 'a delay is longer than ten years', 'say at most 3650 days']
      WHEN run_at IS NOT NULL AND delay IS NOT NULL THEN ARRAY['X_INVALID', 'a delay and an instant are given', 'say one of them']
      WHEN run_at < '1970-01-01 00:00:00.001+00' OR run_at >= '9000-01-01 00:00:00+00'
        THEN ARRAY['X_INVALID', 'a run cannot be due at that instant', 'say one from 1970 on and before 9000, or leave it out to run at once']
      WHEN on_conflict NOT IN ('dedupe', 'reject') THEN ARRAY['X_INVALID', 'on_conflict says nothing about a conflict', 'say dedupe or reject']
    END;
  END IF;
  IF wrong IS NOT NULL THEN
    PERFORM {schema}.outbox_refuse(wrong);
  END IF;

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

-- Where the queue is in this very schema its own function stays.
DO $do$
BEGIN
  IF to_regclass('{schema}.publishing') IS NOT NULL THEN
    RETURN;
  END IF;
  EXECUTE $f$
CREATE OR REPLACE FUNCTION {schema}.publish(
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
  wrong  text[];
BEGIN
  payload := coalesce(payload, 'null');
  bytes := convert_to(payload, 'UTF8');
  wrong := {schema}.outbox_event_refusal(topic, payload, key, tenant, keep, published_by);
  IF wrong IS NOT NULL THEN
    PERFORM {schema}.outbox_refuse(wrong);
  END IF;
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
END $do$;
