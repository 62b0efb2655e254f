package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qCancelRun   = named("cancel_run")
	qToUndo      = named("to_undo")
	qLeaseEnd    = named("lease_end")
	qUnwindRun   = named("unwind_run")
	qClaimEnding = named("claim_ending")
)

// Cancel implements store.Admin.
func (s *Store) Cancel(ctx context.Context, p store.CancelParams) (job.Run, error) {
	var out job.Run
	err := s.w.do(ctx, func(tx *tx) error {
		r, seq, err := tx.get(p.ID)
		if err != nil {
			return err
		}
		if r.State.Terminal() {
			return store.NotCancellable(&r)
		}
		if err := tx.cancel(&r, seq, p); err != nil {
			return err
		}
		out = r
		return tx.audit(store.AuditEntry{By: p.By, Verb: store.AuditCancel, Kind: store.AuditRun, Subject: r.ID, Detail: p.Detail()})
	})
	if err != nil {
		return job.Run{}, err
	}
	return out, nil
}

// cancel cancels a live run with its children, and keeps r in step with the row.
func (t *tx) cancel(r *job.Run, seq int64, p store.CancelParams) error {
	undo, err := t.toUndo(seq)
	if err != nil {
		return err
	}
	record, err := p.Unwind(r, undo)
	if err != nil {
		return err
	}
	if record != nil {
		err = t.unwindRun(r, seq, record, p.Failure())
	} else {
		err = t.cancelRun(seq, r.Queue, max(p.Retention.Milliseconds(), 0), p.Failure())
		r.State, r.FinishedAt = job.Cancelled, fromMS(t.now)
		if p.Retention > 0 {
			r.ExpiresAt = fromMS(t.now + p.Retention.Milliseconds())
		}
	}
	if err != nil {
		return err
	}
	r.Worker, r.Blocked, r.Aged = "", "", false
	if f := p.Failure(); f != nil {
		r.Error = *f
	}
	if err := t.endChildren(seq, r.ID, p.NoCompensate); err != nil {
		return err
	}
	if record == nil && r.Parent != "" {
		return t.tellParent(r.ID)
	}
	return nil
}

func (t *tx) toUndo(seq int64) (u store.ToUndo, err error) {
	q := t.use(qToUndo)
	q.int(seq)
	for q.step() {
		if job.StepKind(q.colText(0)) == job.KindUndoable {
			u.Undoable = true
			continue
		}
		f := scanFailure(&q, 2)
		u.Unwind, u.Failure = q.colBlob(1), &f
	}
	return u, q.end()
}

// unwindRun has a live run undone, which the record says.
func (t *tx) unwindRun(r *job.Run, seq int64, record *store.StepParams, reason *job.Failure) error {
	state, due := job.Ready, t.now
	if r.State == job.Running {
		// Its worker has stopped it by then, or has lapsed.
		q := t.use(qLeaseEnd)
		q.text(r.Worker)
		if q.step() {
			due = max(due, q.colInt(0))
		}
		if err := q.end(); err != nil {
			return err
		}
		state = job.Suspended
	}
	if err := t.leaveAny(seq); err != nil {
		return err
	}
	q := t.use(qUnwindRun)
	q.int(seq)
	q.text(string(state))
	q.int(due)
	if err := q.exec(); err != nil {
		return err
	}
	h := held{
		seq: seq, queue: r.Queue, attempt: int64(r.Attempt), claimedAt: toMS(r.ClaimedAt),
		module: r.Module, steps: int64(r.Steps), orphans: int64(r.Orphans),
	}
	if _, err := t.saveStep(&h, record); err != nil {
		return err
	}
	if r.State == job.Running {
		ref := job.Ref{RunID: r.ID, Worker: r.Worker, Claim: r.Claims}
		if err := t.addAttempt(&h, attempt{ref: ref, outcome: job.Unwinding, runAt: due, failure: reason}); err != nil {
			return err
		}
	}
	r.State, r.RunAt, r.Steps = state, fromMS(due), int(h.steps)
	t.group.wake(r.Queue)
	if reason == nil {
		return nil
	}
	return t.setError(seq, reason)
}

// LetGo implements store.Workers.
func (s *Store) LetGo(ctx context.Context, ref job.Ref) error {
	return s.w.do(ctx, func(tx *tx) error {
		taken, err := tx.takenByCancel(ref)
		if err != nil || !taken {
			return err
		}
		r, seq, err := tx.get(ref.RunID)
		if err != nil || r.State != job.Suspended || r.Claims != ref.Claim || toMS(r.RunAt) <= tx.now {
			return err
		}
		q := tx.use(qUnwindRun)
		q.int(seq)
		q.text(string(job.Ready))
		q.int(tx.now)
		if err := q.exec(); err != nil {
			return err
		}
		tx.group.wake(r.Queue)
		return nil
	})
}

// takenByCancel reports whether it was a cancel that ended ref's claim, to have
// the run undone.
func (t *tx) takenByCancel(ref job.Ref) (bool, error) {
	id, ok := parseUUID(ref.RunID)
	if !ok {
		return false, nil
	}
	q := t.use(qClaimEnding)
	q.blob(id[:])
	q.int(ref.Claim)
	taken := false
	if q.step() {
		taken = job.Outcome(q.colText(0)) == job.Unwinding && q.colInt(1) == 0 && q.colText(2) == ref.Worker
	}
	return taken, q.end()
}
