-- How far each schedule has come. Instants are Unix milliseconds.
CREATE TABLE schedules (
  name               TEXT    PRIMARY KEY,
  spec               TEXT    NOT NULL, -- what occurrences were last computed from
  watermark          INTEGER NOT NULL, -- occurrences up to here have been dealt with
  fired_occurrence   INTEGER,
  fired_at           INTEGER,
  fires              INTEGER NOT NULL DEFAULT 0,
  skipped_occurrence INTEGER,
  skipped_for        BLOB,
  skips              INTEGER NOT NULL DEFAULT 0,
  missed             INTEGER NOT NULL DEFAULT 0,
  paused_at          INTEGER,
  paused_by          TEXT    NOT NULL DEFAULT '',
  holder             TEXT    NOT NULL DEFAULT '',
  leased_until       INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
