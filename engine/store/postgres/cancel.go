package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var qCancelRun = named("cancel_run")

// cancelTries is how often a cancel follows a run that moves from one table to
// the next under its eyes: between claims and reports, a few times a second.
const cancelTries = 100

var waitingStates = []string{string(job.Ready), string(job.Delayed), string(job.Suspended)}

// Cancel implements store.Admin.
func (s *Store) Cancel(ctx context.Context, p store.CancelParams) (out job.Run, err error) {
	id, ok := parseUUID(p.ID)
	if !ok {
		return out, errNotFound(p.ID)
	}
	var failure *job.Failure
	if p.Reason != "" {
		failure = &job.Failure{Code: job.CodeCancelled, Message: p.Reason}
	}
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		for range cancelTries {
			ended := false
			args := []any{id.param(), failureText(failure), ms(p.Retention), waitingStates}
			err := s.run(ctx, tx, call{st: qCancelRun, args: args, scan: func(*row) error {
				ended = true
				return nil
			}})
			if err != nil {
				return err
			}
			if out, err = s.get(ctx, tx, p.ID); err != nil {
				return err
			}
			if ended {
				return s.audit(ctx, tx, store.AuditEntry{By: p.By, Verb: store.AuditCancel, Kind: store.AuditRun, Subject: out.ID, Detail: p.Reason})
			}
			if out.State.Terminal() {
				return &abi.Error{
					Code:    job.CodeNotCancellable,
					Message: fmt.Sprintf("run %s is %s already", out.ID, out.State),
					Fix:     "only a run that has not ended can be cancelled",
				}
			}
			// It moved while the statement waited for it: look again.
		}
		return &abi.Error{Code: job.CodeDatabaseBusy, Message: fmt.Sprintf("run %s changes too fast to be cancelled", p.ID), Fix: "try again"}
	})
	if err != nil {
		return job.Run{}, err
	}
	return out, nil
}
