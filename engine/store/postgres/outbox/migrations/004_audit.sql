-- Who staged what again: an entry is written by the commit that does it. The queue's
-- audit may be in another database, which no commit of this one reaches.

CREATE TABLE {schema}.outbox_audit (
  id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL,
  actor   text        NOT NULL COLLATE "C",
  verb    text        NOT NULL COLLATE "C",
  kind    text        NOT NULL COLLATE "C",
  subject text        NOT NULL COLLATE "C",
  detail  text        NOT NULL COLLATE "C"
);

CREATE INDEX outbox_audit_subject ON {schema}.outbox_audit (subject, id);
CREATE INDEX outbox_audit_actor ON {schema}.outbox_audit (left(actor, 255), id);

-- Roles that may stage rows again may say so.
DO $do$
DECLARE role oid;
BEGIN
  FOR role IN SELECT a.grantee FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
    WHERE c.oid = '{schema}.outbox'::regclass AND a.privilege_type = 'DELETE' AND a.grantee NOT IN (0, c.relowner)
  LOOP
    EXECUTE 'GRANT SELECT, INSERT, DELETE ON {schema}.outbox_audit TO ' || role::regrole;
  END LOOP;
END $do$;
