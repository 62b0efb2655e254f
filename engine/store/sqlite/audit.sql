-- name: add_audit
INSERT INTO audit (at, actor, verb, kind, subject, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: list_audit
-- ?1 the id before which, ?2 limit
SELECT id, at, actor, verb, kind, subject, detail FROM audit WHERE id < ?1 ORDER BY id DESC LIMIT ?2

-- name: list_audit_kind
-- ?1 the id before which, ?2 limit, ?3 kind
SELECT id, at, actor, verb, kind, subject, detail FROM audit NOT INDEXED WHERE kind = ?3 AND id < ?1 ORDER BY id DESC LIMIT ?2

-- name: list_audit_subject
-- ?1 the id before which, ?2 limit, ?3 kind, ?4 subject
SELECT id, at, actor, verb, kind, subject, detail FROM audit INDEXED BY audit_subject
WHERE kind = ?3 AND subject = ?4 AND id < ?1 ORDER BY id DESC LIMIT ?2

-- name: purge_audit
-- ?1 the instant until which, ?2 limit: not much more than that at a time
DELETE FROM audit WHERE at <= min(?1, coalesce((SELECT at FROM audit WHERE at > 0 ORDER BY at LIMIT 1 OFFSET ?2), ?1))
