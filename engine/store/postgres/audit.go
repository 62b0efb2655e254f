package postgres

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
func (s *Store) audit(ctx context.Context, tx queryer, e store.AuditEntry) error {
	return s.run(ctx, tx, call{st: qAddAudit, args: []any{enc(e.By), string(e.Verb), string(e.Kind), enc(e.Subject), enc(e.Detail)}})
}

// Audit implements store.Auditor.
func (s *Store) Audit(ctx context.Context, p store.AuditParams) (out []store.AuditEntry, err error) {
	p, err = p.Page()
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
	c := call{st: st, args: []any{
		p.Before, p.Limit, enc(string(p.Kind)), enc(p.Subject), enc(p.By), string(p.Verb), p.Since, p.Until,
	}}
	c.scan = func(r *row) error {
		out = append(out, store.AuditEntry{
			ID: r.int(), At: r.time(), By: r.text(), Verb: store.AuditVerb(r.text()),
			Kind: store.AuditKind(r.text()), Subject: r.text(), Detail: r.text(),
		})
		return nil
	}
	err = s.read(ctx, func(q queryer) error {
		out = nil
		return s.run(ctx, q, c)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// auditChunk bounds the entries deleted in one transaction.
const auditChunk = 10_000

// purgeAudit deletes entries that are older than they need be.
func (s *Store) purgeAudit(ctx context.Context) error {
	return s.write(ctx, func(q queryer) error {
		return s.run(ctx, q, call{st: qPurgeAudit, args: []any{store.AuditRetention.Milliseconds(), auditChunk}})
	})
}
