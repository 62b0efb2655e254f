-- Words that no build writes are refused, and what an aged run was enqueued with is kept.

ALTER TABLE {schema}.waiting ADD COLUMN asked_priority smallint; -- of a run that has aged
UPDATE {schema}.waiting SET asked_priority = 0 WHERE priority = -101;
UPDATE {schema}.running SET priority = 0 WHERE priority = -101;
UPDATE {schema}.finished SET priority = 0 WHERE priority = -101;

-- An enqueuer's role writes rows of waiting itself. One behind no gate that is blocked,
-- or in a state that there is not, would be claimed by nobody and listed nowhere, and
-- one that says to have aged would go before all others.
ALTER TABLE {schema}.waiting
  ADD CONSTRAINT waiting_state CHECK (state IN ('ready', 'delayed', 'suspended') OR state = 'blocked' AND at_gate IS NOT NULL),
  ADD CONSTRAINT waiting_priority CHECK (
    asked_priority IS NULL AND priority BETWEEN -100 AND 100 OR asked_priority IS NOT NULL AND priority = -101);
ALTER TABLE {schema}.finished ADD CONSTRAINT finished_state CHECK (state IN ('done', 'failed', 'dead', 'cancelled'));
ALTER TABLE {schema}.tally ADD CONSTRAINT tally_state CHECK (state IN ('done', 'failed', 'dead', 'cancelled'));
ALTER TABLE {schema}.steps
  ADD CONSTRAINT steps_status CHECK (status IN ('completed', 'started', 'failed', 'retrying', 'sleeping', 'waiting', 'timed-out')),
  ADD CONSTRAINT steps_kind CHECK (kind IN ('step', 'undoable', 'sleep', 'enqueue', 'publish', 'wait', 'invoke', 'unwind', 'compensation'));
ALTER TABLE {schema}.attempts ADD CONSTRAINT attempts_outcome CHECK (outcome IN ('completed', 'suspended', 'retried', 'dead-lettered',
  'dropped', 'interrupted', 'deferred', 'shed', 'unwinding', 'undone', 'refused', 'orphaned'));
ALTER TABLE {schema}.pauses ADD CONSTRAINT pauses_kind CHECK (kind IN ('queue', 'job', 'tenant'));

-- What one operator did, and where something was done.
CREATE INDEX audit_actor ON {schema}.audit (left(actor, 255), id);
CREATE INDEX audit_verb ON {schema}.audit (verb, id);

-- As before, and refuses with a code.
CREATE OR REPLACE FUNCTION {schema}.extend(ahead integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' SET timezone = 'UTC' SET standard_conforming_strings = on AS $$
DECLARE
  week   timestamptz := date_trunc('week', clock_timestamp());
  low    uuid;
  high   uuid;
  parent text;
  made   integer := 0;
BEGIN
  IF ahead IS NULL OR ahead NOT BETWEEN 0 AND 52 THEN
    PERFORM {schema}.queue_refuse(ARRAY['X_INVALID', format('%s weeks ahead cannot be made', coalesce(ahead::text, 'no number of')), 'say 0 to 52']);
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

CREATE OR REPLACE FUNCTION {schema}.refuse() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'X_DATABASE_BUSY: the id names a run already' USING ERRCODE = 'RN001', HINT = 'roll the transaction back and try again';
END $$;
