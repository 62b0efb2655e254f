-- Events, the runs that wait for them, and the runs that wait for runs.

-- seq is never used twice: it is the order of events, and waits keep places in it.
CREATE TABLE events (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  id           BLOB    NOT NULL,
  topic        TEXT    NOT NULL,
  key          TEXT    NOT NULL,
  payload      BLOB    NOT NULL,
  run          BLOB,
  published_by TEXT    NOT NULL,
  published_at INTEGER NOT NULL,
  expires_at   INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_id ON events (id);
CREATE INDEX events_topic ON events (topic, seq);
CREATE INDEX events_key ON events (topic, key, seq) WHERE key <> '';
CREATE INDEX events_expiry ON events (expires_at);

-- What a suspended run is parked for: events of a topic (and of a key, unless
-- that is ''), or that at most so many of its children are live.
ALTER TABLE runs ADD COLUMN topic TEXT;
ALTER TABLE runs ADD COLUMN event_key TEXT;
ALTER TABLE runs ADD COLUMN awaits INTEGER;

CREATE INDEX runs_topic ON runs (topic, event_key, id) WHERE topic IS NOT NULL;

ALTER TABLE steps ADD COLUMN topic TEXT;      -- of a wait
ALTER TABLE steps ADD COLUMN event_key TEXT;  -- of a wait
ALTER TABLE steps ADD COLUMN place INTEGER;   -- of a wait: the events after it are the next one's
ALTER TABLE steps ADD COLUMN child BLOB;      -- of an invoke

-- Live runs that another waits for.
CREATE TABLE invocations (
  child   BLOB    PRIMARY KEY,
  parent  INTEGER NOT NULL, -- runs.seq
  name    TEXT    NOT NULL, -- of the parent's record
  abandon INTEGER NOT NULL,
  keep    INTEGER NOT NULL  -- ms that the child is kept if it is cancelled with its parent; 0 is for ever
) STRICT, WITHOUT ROWID;

CREATE INDEX invocations_parent ON invocations (parent);
