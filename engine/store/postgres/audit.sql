-- name: add_audit
INSERT INTO {schema}.audit (at, actor, verb, kind, subject, detail) VALUES ({now}, $1, $2, $3, $4, $5)

-- name: list_audit
-- $1 the id before which, $2 limit
SELECT id, at, actor, verb, kind, subject, detail FROM {schema}.audit WHERE id < $1 ORDER BY id DESC LIMIT $2

-- name: list_audit_kind
-- $1 the id before which, $2 limit, $3 kind
SELECT id, at, actor, verb, kind, subject, detail FROM {schema}.audit
WHERE kind = $3 AND id < $1 ORDER BY id DESC LIMIT $2

-- name: list_audit_subject
-- $1 the id before which, $2 limit, $3 kind, $4 subject
SELECT id, at, actor, verb, kind, subject, detail FROM {schema}.audit
WHERE kind = $3 AND subject = $4 AND id < $1 ORDER BY id DESC LIMIT $2

-- name: purge_audit
-- $1 how long an entry is kept, in ms, $2 limit: ids rise with time
DELETE FROM {schema}.audit WHERE id = ANY (ARRAY(SELECT id FROM {schema}.audit ORDER BY id LIMIT $2))
  AND at < {now} - $1::bigint * interval '1 millisecond'
