-- name: add_audit
INSERT INTO audit (at, actor, verb, kind, subject, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- define: audit_page
-- ?1 the id before which, ?2 limit, ?3 kind, ?4 subject, ?5 actor, ?6 verb, ?7 and ?8 the times
-- between: '' filters nothing. What only the times or a kind narrow is looked for from the
-- newest on.
id < ?1 AND (?3 = '' OR kind = ?3) AND (?4 = '' OR subject = ?4) AND (?5 = '' OR actor = ?5) AND (?6 = '' OR verb = ?6)
  AND at >= ?7 AND at < ?8
ORDER BY id DESC LIMIT ?2

-- name: list_audit
SELECT id, at, actor, verb, kind, subject, detail FROM audit NOT INDEXED WHERE {audit_page}

-- name: list_audit_subject
SELECT id, at, actor, verb, kind, subject, detail FROM audit INDEXED BY audit_subject WHERE kind = ?3 AND subject = ?4 AND {audit_page}

-- name: list_audit_actor
SELECT id, at, actor, verb, kind, subject, detail FROM audit INDEXED BY audit_actor WHERE actor = ?5 AND {audit_page}

-- name: list_audit_verb
SELECT id, at, actor, verb, kind, subject, detail FROM audit INDEXED BY audit_verb WHERE verb = ?6 AND {audit_page}

-- name: purge_audit
-- ?1 the instant until which, ?2 limit: not much more than that at a time
DELETE FROM audit WHERE at <= min(?1, coalesce((SELECT at FROM audit WHERE at > 0 ORDER BY at LIMIT 1 OFFSET ?2), ?1))
