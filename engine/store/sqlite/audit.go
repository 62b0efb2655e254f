package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/store"
)

var (
	qAddAudit         = named("add_audit")
	qListAudit        = named("list_audit")
	qListAuditKind    = named("list_audit_kind")
	qListAuditSubject = named("list_audit_subject")
	qPurgeAudit       = named("purge_audit")
)

// audit writes an entry with the transaction.
func (t *tx) audit(e store.AuditEntry) error {
	q := t.use(qAddAudit)
	q.int(t.now)
	q.text(e.By)
	q.text(string(e.Verb))
	q.text(string(e.Kind))
	q.text(e.Subject)
	q.text(e.Detail)
	return q.exec()
}

// Audit implements store.Auditor.
func (s *Store) Audit(ctx context.Context, p store.AuditParams) ([]store.AuditEntry, error) {
	limit, err := store.PageLimit(p.Limit)
	if err != nil {
		return nil, err
	}
	before, err := p.BeforeEntry()
	if err != nil {
		return nil, err
	}
	var out []store.AuditEntry
	err = s.read(ctx, func(c *conn) error {
		out = nil
		st := qListAudit
		switch {
		case p.Subject != "":
			st = qListAuditSubject
		case p.Kind != "":
			st = qListAuditKind
		}
		q := c.use(st)
		q.int(before)
		q.int(int64(limit))
		if st != qListAudit {
			q.text(string(p.Kind))
		}
		if st == qListAuditSubject {
			q.text(p.Subject)
		}
		for q.step() {
			out = append(out, store.AuditEntry{
				ID: q.colInt(0), At: q.colTime(1), By: q.colText(2), Verb: store.AuditVerb(q.colText(3)),
				Kind: store.AuditKind(q.colText(4)), Subject: q.colText(5), Detail: q.colText(6),
			})
		}
		return q.end()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// purgeAudit deletes entries that are older than they need be.
func (t *tx) purgeAudit(limit int) error {
	q := t.use(qPurgeAudit)
	q.int(t.now - store.AuditRetention.Milliseconds())
	q.int(int64(limit))
	return q.exec()
}
