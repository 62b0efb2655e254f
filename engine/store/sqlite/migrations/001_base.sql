-- Runs, their history, and the workers that hold them.
--
-- Instants are Unix milliseconds. States, outcomes and statuses are the texts of
-- package job. '' is "none" where a column is NOT NULL. Ids are the sixteen
-- bytes of the UUID: read them with hex(id).

CREATE TABLE runs (
  seq           INTEGER PRIMARY KEY, -- what steps, attempts and payloads refer to
  id            BLOB    NOT NULL,
  job           TEXT    NOT NULL,
  queue         TEXT    NOT NULL,
  tenant        TEXT    NOT NULL,
  key           TEXT    NOT NULL,
  state         TEXT    NOT NULL,
  priority      INTEGER NOT NULL,
  attempt       INTEGER NOT NULL DEFAULT 0,
  max_attempts  INTEGER NOT NULL,
  claims        INTEGER NOT NULL DEFAULT 0, -- never reset
  settled       INTEGER NOT NULL DEFAULT 0, -- the latest claim that its own worker settled
  orphans       INTEGER NOT NULL DEFAULT 0,
  steps         INTEGER NOT NULL DEFAULT 0, -- records in steps; their seq is 1 to this
  worker        TEXT    NOT NULL DEFAULT '', -- of the latest claim, also after its end
  run_at        INTEGER NOT NULL,
  created_at    INTEGER NOT NULL,
  started_at    INTEGER,
  claimed_at    INTEGER,
  finished_at   INTEGER,
  expires_at    INTEGER,
  module        TEXT    NOT NULL DEFAULT '',
  parent        BLOB,
  enqueued_by   TEXT    NOT NULL,
  traceparent   TEXT    NOT NULL,
  error_code    TEXT,
  error_message TEXT,
  error_fix     TEXT,
  error_stack   TEXT,
  progress      INTEGER,
  progress_note TEXT,
  input         BLOB, -- NULL: in payloads
  output        BLOB
) STRICT;

CREATE UNIQUE INDEX runs_id ON runs (id);

-- A run is live until finished_at is set. Conditions avoid IN: SQLite builds a
-- table of its list each time an update asks whether a row is in the index.

-- The idempotency namespace. enqueue.sql spells the same expression.
CREATE UNIQUE INDEX runs_key ON runs (job, tenant, key) WHERE key <> '' AND finished_at IS NULL;

-- The claim path. Live runs only, each in at most one of the three.
CREATE INDEX runs_ready ON runs (queue, tenant, priority, run_at, id) WHERE state = 'ready';
CREATE INDEX runs_waiting ON runs (queue, run_at) WHERE state = 'delayed' OR state = 'suspended';
CREATE INDEX runs_running ON runs (worker) WHERE state = 'running';

-- Listings of what people look for among millions of done runs.
CREATE INDEX runs_ended ON runs (state, id) WHERE finished_at IS NOT NULL AND state <> 'done';
CREATE INDEX runs_parent ON runs (parent, id) WHERE parent IS NOT NULL;

CREATE INDEX runs_expiry ON runs (expires_at) WHERE expires_at IS NOT NULL;

-- Inputs too large to be rewritten with every change of their run's row.
CREATE TABLE payloads (
  run   INTEGER PRIMARY KEY,
  input BLOB NOT NULL
) STRICT;

CREATE TABLE steps (
  run           INTEGER NOT NULL,
  name          TEXT    NOT NULL,
  seq           INTEGER NOT NULL,
  kind          TEXT    NOT NULL,
  status        TEXT    NOT NULL,
  attempts      INTEGER NOT NULL,
  wake_at       INTEGER,
  started_at    INTEGER NOT NULL,
  finished_at   INTEGER NOT NULL,
  error_code    TEXT,
  error_message TEXT,
  error_fix     TEXT,
  error_stack   TEXT,
  output        BLOB,
  PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

-- Ended attempts, but for a first one that completed: its run says the same.
CREATE TABLE attempts (
  run           INTEGER NOT NULL,
  claim         INTEGER NOT NULL,
  attempt       INTEGER NOT NULL,
  worker        TEXT    NOT NULL,
  outcome       TEXT    NOT NULL,
  reported      INTEGER NOT NULL, -- 1: settled by its worker; 0: taken from it
  claimed_at    INTEGER NOT NULL,
  settled_at    INTEGER NOT NULL,
  run_at        INTEGER,
  module        TEXT    NOT NULL,
  steps         INTEGER NOT NULL,
  error_code    TEXT,
  error_message TEXT,
  error_fix     TEXT,
  error_stack   TEXT,
  PRIMARY KEY (run, claim)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
  id         TEXT    PRIMARY KEY,
  host       TEXT    NOT NULL,
  pid        INTEGER NOT NULL,
  queues     TEXT    NOT NULL, -- JSON array
  started_at INTEGER NOT NULL,
  renewed_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A row per queue that was ever paused or had a run finish: counts of finished
-- runs still kept, moved by the write that moves the run.
CREATE TABLE queues (
  name      TEXT    PRIMARY KEY,
  paused_at INTEGER,
  done      INTEGER NOT NULL DEFAULT 0,
  failed    INTEGER NOT NULL DEFAULT 0,
  dead      INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
