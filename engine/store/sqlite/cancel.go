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
		r.State, r.Worker, r.Blocked, r.FinishedAt = job.Cancelled, "", "", fromMS(tx.now)
		if p.Retention > 0 {
			r.ExpiresAt = fromMS(tx.now + p.Retention.Milliseconds())
		}
		var reason *job.Failure
		if p.Reason != "" {
			r.Error = job.Failure{Code: job.CodeCancelled, Message: p.Reason}
			reason = &r.Error
		}
		if err := tx.cancelRun(seq, r.Queue, max(p.Retention.Milliseconds(), 0), reason); err != nil {
			return err
		}
		out = r
		if err := tx.endChildren(seq, r.ID); err != nil {
			return err
		}
		if r.Parent != "" {
			if err := tx.tellParent(r.ID); err != nil {
				return err
			}
		}
		return tx.audit(store.AuditEntry{By: p.By, Verb: store.AuditCancel, Kind: store.AuditRun, Subject: r.ID, Detail: p.Reason})
	})
	if err != nil {
		return job.Run{}, err
	}
	return out, nil
}
