package sqlite

import (
	"context"
	"fmt"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var qCancelRun = named("cancel_run")

// Cancel implements store.Admin.
func (s *Store) Cancel(ctx context.Context, p store.CancelParams) (job.Run, error) {
	var out job.Run
	err := s.w.do(ctx, func(tx *tx) error {
		r, seq, err := tx.get(p.ID)
		if err != nil {
			return err
		}
		if r.State.Terminal() {
			return &abi.Error{
				Code:    job.CodeNotCancellable,
				Message: fmt.Sprintf("run %s is %s already", r.ID, r.State),
				Fix:     "only a run that has not ended can be cancelled",
			}
		}
		r.State, r.Worker, r.FinishedAt = job.Cancelled, "", fromMS(tx.now)
		var expires int64
		if p.Retention > 0 {
			expires = tx.now + p.Retention.Milliseconds()
			r.ExpiresAt = fromMS(expires)
		}
		q := tx.use(qCancelRun)
		q.int(seq)
		q.int(tx.now)
		q.ms(expires)
		if err := q.exec(); err != nil {
			return err
		}
		if p.Reason != "" {
			r.Error = job.Failure{Code: job.CodeCancelled, Message: p.Reason}
			if err := tx.setError(seq, &r.Error); err != nil {
				return err
			}
		}
		tx.group.count(r.Queue, job.Cancelled, 1)
		out = r
		return tx.audit(store.AuditEntry{By: p.By, Verb: store.AuditCancel, Kind: store.AuditRun, Subject: r.ID, Detail: p.Reason})
	})
	if err != nil {
		return job.Run{}, err
	}
	return out, nil
}
