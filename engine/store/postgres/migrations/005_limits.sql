-- Limits that hold over all claims of this database, and pauses.

-- gate is the limit that a run's enqueuer put it under. at_gate is the one that a
-- running run holds, or that one with the state 'blocked' waits behind: ready, as
-- people see it, but out of every claim's way.
ALTER TABLE {schema}.waiting ADD COLUMN gate text COLLATE "C", ADD COLUMN at_gate text COLLATE "C";
ALTER TABLE {schema}.running ADD COLUMN gate text COLLATE "C", ADD COLUMN at_gate text COLLATE "C",
  ADD COLUMN counted boolean; -- claimed under a limit of its tenant
ALTER TABLE {schema}.finished ADD COLUMN gate text COLLATE "C";

CREATE INDEX waiting_blocked ON {schema}.waiting (at_gate, queue, tenant, priority, run_at, id) WHERE state = 'blocked';
-- What can be set aside together with the first that found a gate full.
CREATE INDEX waiting_gated ON {schema}.waiting (gate, queue) WHERE state = 'ready' AND gate IS NOT NULL;
CREATE INDEX running_gates ON {schema}.running (at_gate) WHERE at_gate IS NOT NULL;
CREATE INDEX running_counted ON {schema}.running (queue, tenant) WHERE counted;

-- Gates that may have room for what waits behind them in the queue, one after
-- another. Ends of runs only add to it, so that none waits for another.
CREATE TABLE {schema}.openings (
  n       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue   text        NOT NULL COLLATE "C",
  gate    text        NOT NULL COLLATE "C",
  open_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX openings_queue ON {schema}.openings (queue, n);

-- What rates have spent: see Rate in package limit. tenant is '' for a rate that is not by tenant.
CREATE TABLE {schema}.rates (
  scope  text   NOT NULL COLLATE "C",
  tenant text   NOT NULL COLLATE "C",
  state  bigint NOT NULL, -- Unix nanoseconds
  PRIMARY KEY (scope, tenant)
) WITH (fillfactor = 50);

-- What is paused, and what was: paused_at is NULL since it was resumed.
CREATE TABLE {schema}.pauses (
  kind       text        NOT NULL COLLATE "C",
  name       text        NOT NULL COLLATE "C",
  paused_at  timestamptz,
  changed_at timestamptz NOT NULL,
  changed_by text        NOT NULL COLLATE "C",
  reason     text        NOT NULL COLLATE "C",
  PRIMARY KEY (kind, name)
);

CREATE INDEX pauses_now ON {schema}.pauses (kind, name) WHERE paused_at IS NOT NULL;

INSERT INTO {schema}.pauses (kind, name, paused_at, changed_at, changed_by, reason)
SELECT 'queue', name, paused_at, paused_at, '', '' FROM {schema}.queues WHERE paused_at IS NOT NULL;

DROP TABLE {schema}.queues;

-- opened notes, with the commit that takes a run from its gate, that others may
-- pass it: in the run's queue, and in others of which runs wait there.
CREATE FUNCTION {schema}.opened() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO {schema}.openings (queue, gate)
  WITH RECURSIVE behind AS (
    (SELECT w.queue FROM {schema}.waiting w WHERE w.state = 'blocked' AND w.at_gate = OLD.at_gate ORDER BY w.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT w.queue FROM {schema}.waiting w WHERE w.state = 'blocked' AND w.at_gate = OLD.at_gate AND w.queue > b.queue ORDER BY w.queue LIMIT 1)
    FROM behind b WHERE b.queue IS NOT NULL
  )
  SELECT OLD.queue, OLD.at_gate
  UNION
  SELECT b.queue, OLD.at_gate FROM behind b WHERE b.queue IS NOT NULL;
  RETURN NULL;
END $$;

CREATE TRIGGER opened AFTER DELETE ON {schema}.running FOR EACH ROW WHEN (OLD.at_gate IS NOT NULL) EXECUTE FUNCTION {schema}.opened();
