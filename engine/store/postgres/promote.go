package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var qPromoteRun = named("promote_run")

// Promote implements store.Admin.
func (s *Store) Promote(ctx context.Context, p store.PromoteParams) (out job.Run, err error) {
	id, ok := parseUUID(p.ID)
	if !ok {
		return out, store.NotFound(p.ID)
	}
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		// A run that is claimed meanwhile is not there any more, and refused below.
		if err := s.run(ctx, tx, call{st: qPromoteRun, args: []any{id.param()}}); err != nil {
			return err
		}
		if out, err = s.get(ctx, tx, p.ID); err != nil {
			return err
		}
		if !out.State.Promotable() {
			return store.NotPromotable(&out)
		}
		e := store.AuditEntry{By: p.By, Verb: store.AuditPromote, Kind: store.AuditRun, Subject: out.ID}
		if err := s.audit(ctx, tx, e); err != nil {
			return err
		}
		return s.notes.in(ctx, tx, []string{out.Queue})
	})
	if err != nil {
		return job.Run{}, err
	}
	s.readied([]job.Run{out})
	return out, nil
}
