-- Runs, their history, and the workers that hold them.
--
-- A run's row is in the table of its phase: waiting (ready, delayed, suspended),
-- running, or finished (done, failed, dead, cancelled). Moving it is a DELETE
-- and an INSERT in one statement, so that what a claim scans holds nothing else.
--
-- Instants have whole milliseconds. States, outcomes and statuses are the texts
-- of package job. NULL is "none". Text is compared by its bytes.

CREATE TABLE {schema}.waiting (
  id           uuid        NOT NULL PRIMARY KEY,
  job          text        NOT NULL COLLATE "C",
  queue        text        NOT NULL COLLATE "C",
  tenant       text        NOT NULL DEFAULT '' COLLATE "C",
  key          text        COLLATE "C", -- '' is the run's own id
  state        text        NOT NULL DEFAULT 'ready' COLLATE "C",
  priority     smallint    NOT NULL,
  attempt      integer     NOT NULL DEFAULT 0,
  max_attempts integer     NOT NULL,
  claims       bigint      NOT NULL DEFAULT 0, -- never reset
  orphans      integer     NOT NULL DEFAULT 0,
  run_at       timestamptz NOT NULL DEFAULT date_trunc('milliseconds', statement_timestamp()),
  created_at   timestamptz NOT NULL DEFAULT date_trunc('milliseconds', statement_timestamp()),
  started_at   timestamptz,
  claimed_at   timestamptz,
  module       text        COLLATE "C",
  parent       uuid,
  enqueued_by  text        COLLATE "C",
  traceparent  text        COLLATE "C",
  error        text        COLLATE "C", -- JSON
  progress     text        COLLATE "C", -- JSON
  input        bytea        -- NULL: in inputs
) WITH (
  autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 20000
);

-- The claim path: due runs only, by the order of a claim.
CREATE INDEX waiting_ready ON {schema}.waiting (queue, tenant, priority, run_at, id) WHERE state = 'ready';
-- What waits for a time.
CREATE INDEX waiting_timed ON {schema}.waiting (queue, run_at) WHERE state IN ('delayed', 'suspended');
CREATE INDEX waiting_parent ON {schema}.waiting (parent, id) WHERE parent IS NOT NULL;

CREATE TABLE {schema}.running (
  id           uuid        NOT NULL PRIMARY KEY,
  job          text        NOT NULL COLLATE "C",
  queue        text        NOT NULL COLLATE "C",
  tenant       text        NOT NULL COLLATE "C",
  key          text        COLLATE "C",
  priority     smallint    NOT NULL,
  attempt      integer     NOT NULL,
  max_attempts integer     NOT NULL,
  claims       bigint      NOT NULL,
  orphans      integer     NOT NULL,
  run_at       timestamptz NOT NULL,
  created_at   timestamptz NOT NULL,
  started_at   timestamptz NOT NULL,
  claimed_at   timestamptz NOT NULL,
  worker       text        NOT NULL COLLATE "C",
  module       text        COLLATE "C",
  parent       uuid,
  enqueued_by  text        COLLATE "C",
  traceparent  text        COLLATE "C",
  error        text        COLLATE "C",
  progress     text        COLLATE "C",
  input        bytea
) WITH (
  fillfactor = 90,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000
);

-- The idempotency namespace: a row per live run that has a key, but for those
-- whose key is their own id, which is as unique without one. alien is the key if
-- it is the text of an id, and so may be the key of the run of that id.
CREATE TABLE {schema}.live_keys (
  job    text NOT NULL COLLATE "C",
  tenant text NOT NULL COLLATE "C",
  key    text NOT NULL COLLATE "C",
  run_id uuid NOT NULL,
  alien  uuid,
  PRIMARY KEY (job, tenant, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX live_keys_alien ON {schema}.live_keys (alien) WHERE alien IS NOT NULL;

-- What follows is kept for the retention of a job. It is partitioned by the
-- run's id, whose first bits are the time of its creation, so that a week whose
-- runs have all expired goes at once.

CREATE TABLE {schema}.finished (
  id           uuid        NOT NULL PRIMARY KEY,
  job          text        NOT NULL COLLATE "C",
  queue        text        NOT NULL COLLATE "C",
  tenant       text        NOT NULL COLLATE "C",
  key          text        COLLATE "C",
  state        text        NOT NULL COLLATE "C",
  priority     smallint    NOT NULL,
  attempt      integer     NOT NULL,
  max_attempts integer     NOT NULL,
  claims       bigint      NOT NULL,
  orphans      integer     NOT NULL,
  run_at       timestamptz NOT NULL,
  created_at   timestamptz NOT NULL,
  started_at   timestamptz,
  claimed_at   timestamptz,
  finished_at  timestamptz NOT NULL,
  expires_at   timestamptz, -- NULL: kept for ever
  worker       text        COLLATE "C", -- of the latest claim
  module       text        COLLATE "C",
  parent       uuid,
  enqueued_by  text        COLLATE "C",
  traceparent  text        COLLATE "C",
  error        text        COLLATE "C",
  progress     text        COLLATE "C",
  input        bytea,
  output       bytea
) PARTITION BY RANGE (id);

CREATE INDEX finished_expiry ON {schema}.finished (expires_at);
-- What people look for among millions of done runs.
CREATE INDEX finished_bad ON {schema}.finished (state, id) WHERE state IN ('failed', 'dead', 'cancelled');
CREATE INDEX finished_parent ON {schema}.finished (parent, id) WHERE parent IS NOT NULL;

-- Inputs too large to be rewritten whenever their run moves.
CREATE TABLE {schema}.inputs (
  run_id uuid  NOT NULL PRIMARY KEY,
  input  bytea NOT NULL
) PARTITION BY RANGE (run_id);

-- ordinal only orders the records of one run: seq, as people see it, counts them.
CREATE TABLE {schema}.steps (
  run_id      uuid        NOT NULL,
  name        text        NOT NULL COLLATE "C",
  ordinal     bigint      NOT NULL,
  kind        text        NOT NULL COLLATE "C",
  status      text        NOT NULL COLLATE "C",
  attempts    integer     NOT NULL,
  wake_at     timestamptz,
  started_at  timestamptz NOT NULL,
  finished_at timestamptz NOT NULL,
  error       text        COLLATE "C",
  output      bytea,
  PRIMARY KEY (run_id, name)
) PARTITION BY RANGE (run_id);

CREATE SEQUENCE {schema}.step_ordinal;

-- Ended attempts, but for a first one that completed: its run says the same.
CREATE TABLE {schema}.attempts (
  run_id     uuid        NOT NULL,
  claim      bigint      NOT NULL,
  attempt    integer     NOT NULL,
  worker     text        NOT NULL COLLATE "C",
  outcome    text        NOT NULL COLLATE "C",
  reported   boolean     NOT NULL, -- settled by its worker, not taken from it
  claimed_at timestamptz NOT NULL,
  settled_at timestamptz NOT NULL,
  run_at     timestamptz,
  module     text        COLLATE "C",
  steps      integer     NOT NULL,
  error      text        COLLATE "C",
  PRIMARY KEY (run_id, claim)
) PARTITION BY RANGE (run_id);

CREATE TABLE {schema}.workers (
  id         text        NOT NULL COLLATE "C" PRIMARY KEY,
  host       text        NOT NULL,
  pid        integer     NOT NULL,
  queues     text[]      NOT NULL,
  started_at timestamptz NOT NULL,
  renewed_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- A row per queue that was ever paused.
CREATE TABLE {schema}.queues (
  name      text        NOT NULL COLLATE "C" PRIMARY KEY,
  paused_at timestamptz
);

-- Finished runs that are kept, counted: each write that moves some adds a row,
-- the purge folds them.
CREATE TABLE {schema}.tally (
  queue text   NOT NULL COLLATE "C",
  state text   NOT NULL COLLATE "C",
  n     bigint NOT NULL
);

-- refuse ends the transaction of an insert that turns out to name a run that
-- began or ended before.
CREATE FUNCTION {schema}.refuse() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the id names a run already' USING ERRCODE = 'RN001', HINT = 'the runner looks the run up and goes on';
END $$;

-- floor_id is the lowest id of the millisecond.
CREATE FUNCTION {schema}.floor_id(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;

-- extend makes the partitions of the weeks from this one to those ahead, and
-- answers how many weeks it made. Workers call it: it runs with the rights of the
-- schema's owner, whether or not theirs would do. A week of which the partition
-- for the rest holds something already is left to that.
CREATE FUNCTION {schema}.extend(ahead integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' SET timezone = 'UTC' AS $$
DECLARE
  week   timestamptz := date_trunc('week', clock_timestamp());
  low    uuid;
  high   uuid;
  parent text;
  made   integer := 0;
BEGIN
  IF ahead NOT BETWEEN 0 AND 52 THEN
    RAISE EXCEPTION 'extend by % weeks', ahead USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF NOT pg_try_advisory_xact_lock(hashtextextended('runner.weeks.' || {schema_literal}, 0)) THEN
    RETURN 0; -- someone is at it
  END IF;
  FOR i IN 0 .. ahead LOOP
    low := {schema}.floor_id(week);
    high := {schema}.floor_id(week + interval '1 week');
    IF to_regclass(format('%I.%I', {schema_literal}, 'finished' || to_char(week, '_IYYY"w"IW'))) IS NULL
       AND NOT EXISTS (SELECT FROM {schema}.finished_rest WHERE id >= low AND id < high)
       AND NOT EXISTS (SELECT FROM {schema}.inputs_rest WHERE run_id >= low AND run_id < high)
       AND NOT EXISTS (SELECT FROM {schema}.steps_rest WHERE run_id >= low AND run_id < high)
       AND NOT EXISTS (SELECT FROM {schema}.attempts_rest WHERE run_id >= low AND run_id < high)
    THEN
      FOREACH parent IN ARRAY ARRAY['finished', 'inputs', 'steps', 'attempts'] LOOP
        EXECUTE format('CREATE TABLE %I.%I PARTITION OF %I.%I FOR VALUES FROM (%L) TO (%L)',
          {schema_literal}, parent || to_char(week, '_IYYY"w"IW'), {schema_literal}, parent, low, high);
      END LOOP;
      made := made + 1;
    END IF;
    week := week + interval '1 week';
  END LOOP;
  RETURN made;
END $$;

-- drop_expired drops the weeks that are over, whose finished runs have all
-- expired at the given time, and of which no run is live. It answers how many
-- runs that were. A week that anyone is using at the moment is left for another
-- time: nobody waits for this, nor behind it.
CREATE FUNCTION {schema}.drop_expired(at timestamptz) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' SET timezone = 'UTC' AS $$
DECLARE
  part    text;
  week    timestamptz;
  low     uuid;
  high    uuid;
  kept    boolean;
  n       bigint;
  dropped bigint := 0;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtextextended('runner.weeks.' || {schema_literal}, 0)) THEN
    RETURN 0;
  END IF;
  FOR part IN
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = '{schema}.finished'::regclass AND c.relname ~ '^finished_\d{4}w\d{2}$' ORDER BY 1
  LOOP
    week := to_date(substr(part, 10), 'IYYY"w"IW');
    CONTINUE WHEN week + interval '1 week' > at;
    low := {schema}.floor_id(week);
    high := {schema}.floor_id(week + interval '1 week');
    CONTINUE WHEN EXISTS (SELECT FROM {schema}.waiting WHERE id >= low AND id < high)
      OR EXISTS (SELECT FROM {schema}.running WHERE id >= low AND id < high);
    EXECUTE format('SELECT EXISTS (SELECT FROM %1$I.%2$I WHERE expires_at > $1) OR EXISTS (SELECT FROM %1$I.%2$I WHERE expires_at IS NULL)',
      {schema_literal}, part) INTO kept USING at;
    CONTINUE WHEN kept;
    BEGIN
      -- Readers go on while the runs are counted. Whoever moves one into or out
      -- of this week meanwhile has a lock here already, or waits for this one.
      EXECUTE format('LOCK TABLE %1$I.%2$I, %1$I.%3$I, %1$I.%4$I, %1$I.%5$I IN SHARE ROW EXCLUSIVE MODE NOWAIT',
        {schema_literal}, part, 'inputs' || substr(part, 9), 'steps' || substr(part, 9), 'attempts' || substr(part, 9));
      EXECUTE format('SELECT EXISTS (SELECT FROM %1$I.%2$I WHERE expires_at > $1) OR EXISTS (SELECT FROM %1$I.%2$I WHERE expires_at IS NULL)',
        {schema_literal}, part) INTO kept USING at;
      CONTINUE WHEN kept OR EXISTS (SELECT FROM {schema}.waiting WHERE id >= low AND id < high)
        OR EXISTS (SELECT FROM {schema}.running WHERE id >= low AND id < high);
      EXECUTE format('INSERT INTO %1$I.tally (queue, state, n) SELECT queue, state, -count(*) FROM %1$I.%2$I GROUP BY queue, state',
        {schema_literal}, part);
      EXECUTE format('SELECT count(*) FROM %I.%I', {schema_literal}, part) INTO n;
      EXECUTE format('LOCK TABLE %1$I.%2$I, %1$I.%3$I, %1$I.%4$I, %1$I.%5$I IN ACCESS EXCLUSIVE MODE NOWAIT',
        {schema_literal}, part, 'inputs' || substr(part, 9), 'steps' || substr(part, 9), 'attempts' || substr(part, 9));
      -- With none live in it, nothing else can come to look for the week: an id
      -- of it that comes in is as new as any, and goes to the rest.
      EXECUTE format('DROP TABLE %1$I.%2$I, %1$I.%3$I, %1$I.%4$I, %1$I.%5$I',
        {schema_literal}, part, 'inputs' || substr(part, 9), 'steps' || substr(part, 9), 'attempts' || substr(part, 9));
      dropped := dropped + n;
    EXCEPTION WHEN lock_not_available THEN
      NULL; -- someone reads it; the tally is rolled back with the rest
    END;
  END LOOP;
  RETURN dropped;
END $$;

CREATE TABLE {schema}.finished_rest PARTITION OF {schema}.finished DEFAULT;
CREATE TABLE {schema}.inputs_rest PARTITION OF {schema}.inputs DEFAULT;
CREATE TABLE {schema}.steps_rest PARTITION OF {schema}.steps DEFAULT;
CREATE TABLE {schema}.attempts_rest PARTITION OF {schema}.attempts DEFAULT;

SELECT {schema}.extend(4);

REVOKE EXECUTE ON FUNCTION {schema}.extend(integer), {schema}.drop_expired(timestamptz) FROM PUBLIC;
