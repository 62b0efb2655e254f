-- name: add_audit
INSERT INTO {schema}.audit (at, actor, verb, kind, subject, detail) VALUES ({now}, $1, $2, $3, $4, $5)

-- define: audit_page
-- $1 the id before which, $2 limit, $3 kind, $4 subject, $5 actor, $6 verb, $7 and $8 the times
-- between: '' filters nothing. What only the times or a kind narrow is looked for from the
-- newest on.
id < $1 AND ($3 = '' OR kind = $3) AND ($4 = '' OR subject = $4) AND ($5 = '' OR actor = $5) AND ($6 = '' OR verb = $6)
  AND at >= $7 AND at < $8
ORDER BY id DESC LIMIT $2

-- name: list_audit
SELECT id, at, actor, verb, kind, subject, detail FROM {schema}.audit WHERE {audit_page}

-- name: list_audit_subject
SELECT id, at, actor, verb, kind, subject, detail FROM {schema}.audit WHERE kind = $3 AND subject = $4 AND {audit_page}

-- name: list_audit_actor
SELECT id, at, actor, verb, kind, subject, detail FROM {schema}.audit WHERE left(actor, 255) = left($5, 255) AND {audit_page}

-- name: list_audit_verb
SELECT id, at, actor, verb, kind, subject, detail FROM {schema}.audit WHERE verb = $6 AND {audit_page}

-- name: purge_audit
-- $1 how long an entry is kept, in ms, $2 limit: ids rise with time
DELETE FROM {schema}.audit WHERE id = ANY (ARRAY(SELECT id FROM {schema}.audit ORDER BY id LIMIT $2))
  AND at < {now} - $1::bigint * interval '1 millisecond'
