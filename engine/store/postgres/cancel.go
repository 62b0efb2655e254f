package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qCancelRun = named("cancel_run")
	qLockLive  = named("lock_live")
	qToUndo    = named("to_undo")
	qUnwindRun = named("unwind_run")
	qLetGo     = named("let_go")
)

// cancelTries is how often a cancel follows a run that moves from one table to
// the next under its eyes: between claims and reports, a few times a second.
const cancelTries = 100

var waitingStates = []string{string(job.Ready), string(job.Delayed), string(job.Suspended), stateBlocked}

// Cancel implements store.Admin.
func (s *Store) Cancel(ctx context.Context, p store.CancelParams) (job.Run, error) {
	if _, ok := parseUUID(p.ID); !ok {
		return job.Run{}, store.NotFound(p.ID)
	}
	var c cancelled
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		c = cancelled{s: s, tx: tx}
		if err := c.family(ctx, p); err != nil {
			return err
		}
		if !c.did {
			return store.NotCancellable(&c.run)
		}
		// Something may have waited for its place.
		if err := s.notes.in(ctx, tx, append(queuesOfResting(c.woken), c.run.Queue)); err != nil {
			return err
		}
		return s.audit(ctx, tx, store.AuditEntry{By: p.By, Verb: store.AuditCancel, Kind: store.AuditRun, Subject: c.run.ID, Detail: p.Detail()})
	})
	if err != nil {
		return job.Run{}, err
	}
	s.woke(c.woken)
	s.hub.Post(slices.Values([]string{c.run.Queue}))
	return c.run, nil
}

// cancelled is one try of a cancel, in a transaction.
type cancelled struct {
	s       *Store
	tx      pgx.Tx
	resting bool      // only if it is not running
	run     job.Run   // as it is now
	did     bool      // it was live, or only resting if that is asked for, and this cancelled it
	woken   []resting // runs that are to be claimed: who waited for it, and what is undone
}

// family cancels a run with the children that it waits for, and tells the run
// that waits for it, which may be ready then.
func (c *cancelled) family(ctx context.Context, p store.CancelParams) error {
	run, err := c.s.get(ctx, c.tx, p.ID)
	if err != nil {
		return err
	}
	// Those who wait for it, and it as one who waits, before its own row.
	var f family
	f.add(p.ID, run.Parent)
	locks := family{parents: append([]string{p.ID}, f.parents...)}
	if err := c.s.run(ctx, c.tx, locks.lock()); err != nil {
		return err
	}
	ended, err := c.one(ctx, p)
	if err != nil || !c.did {
		return err
	}
	woken, err := c.s.leaveChildren(ctx, c.tx, []string{p.ID}, p.NoCompensate)
	c.woken = append(c.woken, woken...)
	if err != nil || !ended || len(f.ended) == 0 {
		return err
	}
	return c.s.runAll(ctx, c.tx, f.calls(func(r resting) { c.woken = append(c.woken, r) })...)
}

// one cancels a run, if it is live. ended says that it is not any more: it is not
// to be undone.
func (c *cancelled) one(ctx context.Context, p store.CancelParams) (ended bool, err error) {
	for range cancelTries {
		if !p.NoCompensate {
			if c.did, err = c.unwind(ctx, p); err != nil || c.did {
				return false, err
			}
		}
		args := []any{idParam(p.ID), failureText(p.Failure()), ms(p.Retention), waitingStates, !c.resting}
		err := c.s.run(ctx, c.tx, call{st: qCancelRun, args: args, scan: func(*row) error {
			c.did = true
			return nil
		}})
		if err != nil {
			return false, err
		}
		if c.run, err = c.s.get(ctx, c.tx, p.ID); err != nil || c.did || c.run.State.Terminal() || c.resting && c.run.State == job.Running {
			return c.did, err
		}
		// It moved while the statement waited for it: look again.
	}
	return false, &abi.Error{Code: job.CodeDatabaseBusy, Message: fmt.Sprintf("run %s changes too fast to be cancelled", p.ID), Fix: "try again"}
}

// unwind has a live run undone, if there is anything to undo. It stays locked if
// there is not.
func (c *cancelled) unwind(ctx context.Context, p store.CancelParams) (did bool, err error) {
	live := false
	err = c.s.run(ctx, c.tx, call{st: qLockLive, args: []any{idParam(p.ID), waitingStates}, scan: func(r *row) error {
		live = r.int() > 0
		return nil
	}})
	if err != nil || !live {
		return false, err
	}
	if c.run, err = c.s.get(ctx, c.tx, p.ID); err != nil {
		return false, err
	}
	undo, lease, err := c.s.toUndo(ctx, c.tx, &c.run)
	if err != nil {
		return false, err
	}
	record, err := p.Unwind(&c.run, undo)
	if err != nil || record == nil {
		return false, err
	}
	var unwind call
	if c.run.State == job.Running {
		// Its worker has stopped it by the end of its lease, or has lapsed.
		var a endings
		a.add(ending{
			ref: refOf(c.run), outcome: job.Unwinding, to: job.Suspended, delay: lease, attemptError: p.Failure(), runError: p.Failure(), step: record,
		})
		unwind = call{st: qSettle, args: a.args()}
	} else {
		unwind = call{st: qUnwindRun, args: []any{idParam(p.ID), failureText(p.Failure()), failureText(record.Error), record.Output}}
	}
	if err := c.s.run(ctx, c.tx, unwind); err != nil {
		return false, err
	}
	if c.run, err = c.s.get(ctx, c.tx, p.ID); err != nil {
		return false, err
	}
	c.woken = append(c.woken, restingOf(&c.run))
	return true, nil
}

// toUndo is what a run's history says of undoing it, and how long a lease its worker
// has left.
func (s *Store) toUndo(ctx context.Context, tx pgx.Tx, run *job.Run) (u store.ToUndo, lease time.Duration, err error) {
	err = s.run(ctx, tx, call{st: qToUndo, args: []any{idParam(run.ID), enc(run.Worker)}, scan: func(r *row) error {
		u.Undoable, u.Unwind = r.bool(), r.bytes()
		if f := r.failure(); u.Unwind != nil {
			u.Failure = &f
		}
		lease = time.Duration(r.int()) * time.Millisecond
		return nil
	}})
	return u, lease, err
}

// restingOf is a run that waits to be claimed.
func restingOf(r *job.Run) resting {
	return resting{queue: r.Queue, tenant: r.Tenant, priority: r.Rank(), due: r.RunAt, ready: r.State == job.Ready}
}

// LetGo implements store.Workers.
func (s *Store) LetGo(ctx context.Context, ref job.Ref) error {
	if _, ok := parseUUID(ref.RunID); !ok {
		return nil
	}
	var woken []resting
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		woken = nil
		args := []any{idParam(ref.RunID), enc(ref.Worker), ref.Claim}
		err := s.run(ctx, tx, call{st: qLetGo, args: args, scan: func(r *row) error {
			woken = append(woken, resting{queue: r.text(), tenant: r.text(), priority: int(r.int()), due: r.time(), ready: true})
			return nil
		}})
		if err != nil || woken == nil {
			return err
		}
		return s.notes.in(ctx, tx, queuesOfResting(woken))
	})
	if err == nil {
		s.woke(woken)
	}
	return err
}
