-- The last lines that handlers logged: a row for those that were saved at once.
CREATE TABLE logs (
  run     INTEGER NOT NULL,
  claim   INTEGER NOT NULL,
  line    INTEGER NOT NULL, -- the first, counting the attempt's from 1
  last    INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  earlier INTEGER NOT NULL, -- lines of the claims before
  bytes   INTEGER NOT NULL,
  data    TEXT    NOT NULL, -- JSON
  PRIMARY KEY (run, claim, line)
) STRICT, WITHOUT ROWID;
