-- Limits that hold over all claims of this database, and pauses.

ALTER TABLE runs ADD COLUMN gate TEXT; -- the limit that its enqueuer put it under
-- The gate that a running run holds, or that one with the state 'blocked' waits
-- behind: ready, as people see it, but out of every claim's way.
ALTER TABLE runs ADD COLUMN at_gate TEXT;
ALTER TABLE runs ADD COLUMN counted INTEGER; -- 1: claimed under a limit of its tenant

CREATE INDEX runs_gates ON runs (at_gate, state, queue, tenant, priority, run_at, id) WHERE at_gate IS NOT NULL;
-- What can be set aside together with the first that found a gate full.
CREATE INDEX runs_gated ON runs (gate, queue) WHERE gate IS NOT NULL AND state = 'ready';
CREATE INDEX runs_counted ON runs (queue, tenant) WHERE counted = 1 AND state = 'running';

-- Gates that may have room for what waits behind them in the queue.
CREATE TABLE openings (
  queue   TEXT    NOT NULL,
  gate    TEXT    NOT NULL,
  open_at INTEGER NOT NULL,
  PRIMARY KEY (queue, gate)
) STRICT, WITHOUT ROWID;

CREATE INDEX openings_due ON openings (queue, open_at);

-- What rates have spent: see Rate in package limit. tenant is '' for a rate that is not by tenant.
CREATE TABLE rates (
  scope  TEXT    NOT NULL,
  tenant TEXT    NOT NULL,
  state  INTEGER NOT NULL, -- Unix nanoseconds
  PRIMARY KEY (scope, tenant)
) STRICT, WITHOUT ROWID;

-- What is paused, and what was: paused_at is NULL since it was resumed.
CREATE TABLE pauses (
  kind       TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  paused_at  INTEGER,
  changed_at INTEGER NOT NULL,
  changed_by TEXT    NOT NULL,
  reason     TEXT    NOT NULL,
  PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

INSERT INTO pauses (kind, name, paused_at, changed_at, changed_by, reason)
SELECT 'queue', name, paused_at, paused_at, '', '' FROM queues WHERE paused_at IS NOT NULL;

ALTER TABLE queues DROP COLUMN paused_at;
