-- Who did what: an entry is written by the commit that does it.
CREATE TABLE audit (
  id      INTEGER PRIMARY KEY,
  at      INTEGER NOT NULL,
  actor   TEXT    NOT NULL,
  verb    TEXT    NOT NULL,
  kind    TEXT    NOT NULL,
  subject TEXT    NOT NULL,
  detail  TEXT    NOT NULL
) STRICT;

CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_subject ON audit (kind, subject, id);
