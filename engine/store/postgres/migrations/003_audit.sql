-- Who did what: an entry is written by the commit that does it.
CREATE TABLE {schema}.audit (
  id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL,
  actor   text        NOT NULL COLLATE "C",
  verb    text        NOT NULL COLLATE "C",
  kind    text        NOT NULL COLLATE "C",
  subject text        NOT NULL COLLATE "C",
  detail  text        NOT NULL COLLATE "C"
);

CREATE INDEX audit_subject ON {schema}.audit (kind, subject, id);
