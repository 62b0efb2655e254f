-- The last lines that handlers logged: a row for those that were saved at once.
CREATE TABLE {schema}.logs (
  run_id  uuid    NOT NULL,
  claim   bigint  NOT NULL,
  line    bigint  NOT NULL, -- the first, counting the attempt's from 1
  last    bigint  NOT NULL,
  attempt integer NOT NULL,
  earlier bigint  NOT NULL, -- lines of the claims before
  bytes   integer NOT NULL,
  data    text    NOT NULL COLLATE "C", -- JSON
  PRIMARY KEY (run_id, claim, line)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- As before, with the lines of the runs that go.
CREATE OR REPLACE FUNCTION {schema}.drop_expired(at timestamptz) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
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
      DELETE FROM {schema}.logs WHERE run_id >= low AND run_id < high;
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
