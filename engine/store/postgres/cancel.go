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

var waitingStates = []string{string(job.Ready), string(job.Delayed), string(job.Suspended), stateBlocked}

// Cancel implements store.Admin.
func (s *Store) Cancel(ctx context.Context, p store.CancelParams) (out job.Run, err error) {
	if _, ok := parseUUID(p.ID); !ok {
		return out, errNotFound(p.ID)
	}
	var failure *job.Failure
	if p.Reason != "" {
		failure = &job.Failure{Code: job.CodeCancelled, Message: p.Reason}
	}
	var woken []resting
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		ended := false
		if out, woken, ended, err = s.cancelFamily(ctx, tx, cancelling{id: p.ID, failure: failure, keep: ms(p.Retention)}); err != nil {
			return err
		}
		if !ended {
			return &abi.Error{
				Code:    job.CodeNotCancellable,
				Message: fmt.Sprintf("run %s is %s already", out.ID, out.State),
				Fix:     "only a run that has not ended can be cancelled",
			}
		}
		if err := s.notes.in(ctx, tx, queuesOfResting(woken)); err != nil {
			return err
		}
		return s.audit(ctx, tx, store.AuditEntry{By: p.By, Verb: store.AuditCancel, Kind: store.AuditRun, Subject: out.ID, Detail: p.Reason})
	})
	if err != nil {
		return job.Run{}, err
	}
	s.woke(woken)
	return out, nil
}

// cancelling is the end of a run by a person, or with its parent.
type cancelling struct {
	id      string
	failure *job.Failure // nil keeps the run's
	keep    int64        // ms; 0 is for ever
	resting bool         // only if it is not running
}

// cancelFamily cancels a run with the children that it waits for, and tells the run
// that waits for it, which may be ready then. ended is as cancelIn has it.
func (s *Store) cancelFamily(ctx context.Context, tx pgx.Tx, c cancelling) (out job.Run, woken []resting, ended bool, err error) {
	run, err := s.get(ctx, tx, c.id)
	if err != nil {
		return out, nil, false, err
	}
	// Those who wait for it, and it as one who waits, before its own row.
	var f family
	f.add(c.id, run.Parent)
	locks := family{parents: append([]string{c.id}, f.parents...)}
	if err := s.run(ctx, tx, locks.lock()); err != nil {
		return out, nil, false, err
	}
	if out, ended, err = s.cancelIn(ctx, tx, c); err != nil || !ended {
		return out, nil, ended, err
	}
	if err := s.leaveChildren(ctx, tx, []string{c.id}); err != nil || len(f.ended) == 0 {
		return out, nil, true, err
	}
	err = s.runAll(ctx, tx, f.calls(func(r resting) { woken = append(woken, r) })...)
	return out, woken, true, err
}

// cancelIn cancels a run and returns it; ended says whether it was live (or only
// resting, if that is asked for), and so whether this ended it.
func (s *Store) cancelIn(ctx context.Context, tx pgx.Tx, c cancelling) (out job.Run, ended bool, err error) {
	for range cancelTries {
		args := []any{idParam(c.id), failureText(c.failure), c.keep, waitingStates, !c.resting}
		err := s.run(ctx, tx, call{st: qCancelRun, args: args, scan: func(*row) error {
			ended = true
			return nil
		}})
		if err != nil {
			return out, false, err
		}
		if out, err = s.get(ctx, tx, c.id); err != nil || ended || out.State.Terminal() || c.resting && out.State == job.Running {
			return out, ended, err
		}
		// It moved while the statement waited for it: look again.
	}
	return out, false, &abi.Error{Code: job.CodeDatabaseBusy, Message: fmt.Sprintf("run %s changes too fast to be cancelled", c.id), Fix: "try again"}
}
