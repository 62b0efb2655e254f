package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/store"
)

var (
	qAddAudit         = named("add_audit")
	qListAudit        = named("list_audit")
	qListAuditSubject = named("list_audit_subject")
	qListAuditActor   = named("list_audit_actor")
	qListAuditVerb    = named("list_audit_verb")
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
	p, err := p.Page()
	if err != nil {
		return nil, err
	}
	st := qListAudit
	switch {
	case p.Subject != "":
		st = qListAuditSubject
	case p.By != "":
		st = qListAuditActor
	case p.Verb != "":
		st = qListAuditVerb
	}
	var out []store.AuditEntry
	err = s.read(ctx, func(c *conn) error {
		out = nil
		q := c.use(st)
		q.int(p.Before)
		q.int(int64(p.Limit))
		q.text(string(p.Kind))
		q.text(p.Subject)
		q.text(p.By)
		q.text(string(p.Verb))
		q.int(toMS(p.Since))
		q.int(toMS(p.Until))
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
