package outbox

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
)

// Audit implements store.Auditor: who staged which rows again. An entry is kept for
// store.AuditRetention, and then until rows are staged again.
func (d *DB) Audit(ctx context.Context, p store.AuditParams) ([]store.AuditEntry, error) {
	p, err := p.Page()
	if err != nil {
		return nil, err
	}
	text := "audit"
	switch {
	case p.Subject != "":
		text = "audit_subject"
	case p.By != "":
		text = "audit_actor"
	}
	whole := func(s string) string { return storable(s, len(s)) }
	var out []store.AuditEntry
	err = d.query(ctx, false, func() { out = nil }, func(r pgx.Rows) error {
		var e store.AuditEntry
		err := r.Scan(&e.ID, &e.At, &e.By, &e.Verb, &e.Kind, &e.Subject, &e.Detail)
		e.At = e.At.UTC()
		out = append(out, e)
		return err
	}, d.text[text], p.Before, p.Limit, whole(string(p.Kind)), whole(p.Subject), whole(p.By), string(p.Verb), p.Since, p.Until)
	return out, err
}
