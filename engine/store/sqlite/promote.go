package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var qPromoteRun = named("promote_run")

// Promote implements store.Admin.
func (s *Store) Promote(ctx context.Context, p store.PromoteParams) (job.Run, error) {
	var out job.Run
	err := s.w.do(ctx, func(tx *tx) error {
		r, seq, err := tx.get(p.ID)
		if err != nil {
			return err
		}
		due := r.State == job.Suspended && !fromMS(tx.now).Before(r.RunAt)
		if !r.State.Promotable() && !due {
			return store.NotPromotable(&r)
		}
		if r.State != job.Ready {
			r.State = job.Ready
			if now := fromMS(tx.now); now.Before(r.RunAt) {
				r.RunAt = now
			}
			q := tx.use(qPromoteRun)
			q.int(seq)
			q.int(tx.now)
			if err := q.exec(); err != nil {
				return err
			}
			tx.group.wake(r.Queue)
		}
		out = r
		return tx.audit(store.AuditEntry{By: p.By, Verb: store.AuditPromote, Kind: store.AuditRun, Subject: r.ID})
	})
	if err != nil {
		return job.Run{}, err
	}
	return out, nil
}
