package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qHeld          = named("held")
	qSettleDone    = named("settle_done")
	qSettleOther   = named("settle_other")
	qSetError      = named("set_error")
	qSetModule     = named("set_module")
	qSetProgress   = named("set_progress")
	qInsertAttempt = named("insert_attempt")
	qSettledBefore = named("settled_before")
)

// Settle implements store.Settler.
func (s *Store) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	for i := range batch {
		if err := batch[i].Check(); err != nil {
			return nil, err
		}
	}
	var out []store.SettleResult
	err := s.w.do(ctx, func(tx *tx) error {
		out = make([]store.SettleResult, len(batch))
		var follow []store.EnqueueParams
		for i := range batch {
			ended, res, err := tx.settle(&batch[i])
			if err != nil {
				return err
			}
			if out[i] = res; ended {
				follow = append(follow, batch[i].Enqueue...)
			}
		}
		if len(follow) == 0 {
			return nil
		}
		_, err := tx.enqueue(follow)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// held is what a fenced write needs to know of the run it may change.
type held struct {
	seq       int64
	queue     string
	attempt   int64
	claimedAt int64
	module    string
	steps     int64
	orphans   int64
	gate      string // that it holds
}

// hold returns the run of ref if it is still running under that claim.
func (t *tx) hold(ref job.Ref) (h held, ok bool, err error) {
	id, valid := parseUUID(ref.RunID)
	if !valid {
		return h, false, nil
	}
	q := t.use(qHeld)
	q.blob(id[:])
	q.text(ref.Worker)
	q.int(ref.Claim)
	if ok = q.step(); ok {
		h = held{
			seq: q.colInt(0), queue: q.colText(1), attempt: q.colInt(2), claimedAt: q.colInt(3),
			module: q.colText(4), steps: q.colInt(5), orphans: q.colInt(6), gate: q.colText(7),
		}
	}
	return h, ok, q.end()
}

// settle says, beside the answer, whether this is what ended the attempt.
func (t *tx) settle(p *store.SettleParams) (ended bool, res store.SettleResult, err error) {
	h, ok, err := t.hold(p.Ref)
	if err != nil {
		return false, store.SettleResult{}, err
	}
	if !ok {
		res, err = t.settledBefore(p.Ref)
		return false, res, err
	}
	if err := t.saveLog(&h, p.Ref.Claim, p.Log); err != nil {
		return false, store.SettleResult{}, err
	}
	var saved store.StepResult
	if p.Step != nil {
		if saved, err = t.saveStep(&h, p.Step); err != nil {
			return false, store.SettleResult{}, err
		}
	}
	if p.Invoke != nil {
		if err := t.startChildren(&h, p.Invoke, p.Module); err != nil {
			return false, store.SettleResult{}, err
		}
	}
	runAt := int64(0)
	if p.To.Live() {
		runAt = t.now
		if p.To != job.Ready {
			runAt += max(p.Delay.Milliseconds(), 0)
		}
		if p.Step != nil && (p.Step.Status == job.StepSleeping || p.Step.Wait != nil) {
			runAt = t.wakeAt(p.Step)
		}
		if p.Invoke != nil {
			runAt = t.now + store.InvokeHorizon.Milliseconds()
			if p.Invoke.Timed {
				if err := t.expireChildren(&h, p.Ref.RunID); err != nil {
					return false, store.SettleResult{}, err
				}
				if runAt, err = t.nextLate(h.seq); err != nil {
					return false, store.SettleResult{}, err
				}
			}
		}
	}
	if err := t.endRun(&h, p, runAt); err != nil {
		return false, store.SettleResult{}, err
	}
	if err := t.setExtras(&h, p); err != nil {
		return false, store.SettleResult{}, err
	}
	if err := t.leave(h.seq, h.gate, true); err != nil {
		return false, store.SettleResult{}, err
	}
	// A first attempt that completed leaves no record: its run says the same.
	if p.Ref.Claim != 1 || p.Outcome != job.Completed {
		err := t.addAttempt(&h, attempt{ref: p.Ref, outcome: p.Outcome, reported: true, runAt: runAt, failure: p.Error})
		if err != nil {
			return false, store.SettleResult{}, err
		}
	}
	ready := false
	switch {
	case p.Step != nil && p.Step.Wait != nil:
		ready, err = t.park(&h, p.Step, &saved)
	case p.Invoke != nil:
		ready, err = t.parkForChildren(&h, p.Invoke.Most)
	case p.To.Terminal():
		err = t.tellFamily(&h, p)
	}
	if err != nil {
		return false, store.SettleResult{}, err
	}
	if ready {
		runAt = t.now
	}
	if p.To.Terminal() {
		t.group.count(h.queue, p.To, 1)
	} else if runAt <= t.now+announce {
		t.group.wake(h.queue)
	}
	return true, store.SettleResult{Landed: true, RunAt: fromMS(runAt)}, nil
}

// tellFamily gives the end of a run to who waits for it, and to whom it waited
// for.
func (t *tx) tellFamily(h *held, p *store.SettleParams) error {
	if p.Invoked {
		if err := t.endChildren(h.seq, p.Ref.RunID, false); err != nil {
			return err
		}
	}
	if p.Parent == "" {
		return nil
	}
	return t.tellParent(p.Ref.RunID)
}

// endRun moves the run to the state that ends the attempt.
func (t *tx) endRun(h *held, p *store.SettleParams, runAt int64) error {
	var finished, expires int64
	if p.To.Terminal() {
		finished = t.now
		if p.Retention > 0 {
			expires = t.now + p.Retention.Milliseconds()
		}
	}
	if p.To == job.Done {
		q := t.use(qSettleDone)
		q.int(h.seq)
		q.blob(p.Output)
		q.int(finished)
		q.ms(expires)
		return q.exec()
	}
	attempt := h.attempt
	if !p.Outcome.Counted() {
		attempt = max(attempt-1, 0)
	}
	// A shed run was never begun: nothing is known of what it does to a worker.
	orphans := int64(0)
	if p.Outcome == job.Shed {
		orphans = h.orphans
	}
	q := t.use(qSettleOther)
	q.int(h.seq)
	q.text(string(p.To))
	q.int(attempt)
	q.ms(runAt)
	q.int(orphans)
	q.ms(finished)
	q.ms(expires)
	return q.exec()
}

// setExtras writes what only some settles carry.
func (t *tx) setExtras(h *held, p *store.SettleParams) error {
	if err := t.pin(h, p.Module); err != nil {
		return err
	}
	if p.Error != nil {
		if err := t.setError(h.seq, p.Error); err != nil {
			return err
		}
	}
	if p.Progress != nil {
		q := t.use(qSetProgress)
		q.int(h.seq)
		q.int(int64(p.Progress.Permille))
		q.text(p.Progress.Note)
		return q.exec()
	}
	return nil
}

// pin ties the run to a module's digest, if it names one and is another.
func (t *tx) pin(h *held, module string) error {
	if module == "" || module == h.module {
		return nil
	}
	h.module = module
	q := t.use(qSetModule)
	q.int(h.seq)
	q.text(module)
	return q.exec()
}

func (t *tx) setError(seq int64, f *job.Failure) error {
	q := t.use(qSetError)
	q.int(seq)
	bindFailure(&q, f)
	return q.exec()
}

// attempt is a timeline record to add; what it leaves out is in held.
type attempt struct {
	ref      job.Ref
	outcome  job.Outcome
	reported bool // its worker settled it, rather than losing it
	runAt    int64
	failure  *job.Failure
}

func (t *tx) addAttempt(h *held, a attempt) error {
	q := t.use(qInsertAttempt)
	q.int(h.seq)
	q.int(a.ref.Claim)
	q.int(h.attempt)
	q.text(a.ref.Worker)
	q.text(string(a.outcome))
	q.bool(a.reported)
	q.int(h.claimedAt)
	q.int(t.now)
	q.ms(a.runAt)
	q.text(h.module)
	q.int(h.steps)
	bindFailure(&q, a.failure)
	return q.exec()
}

// settledBefore answers a settle that found nothing to end: landed if this
// claim's own worker ended it before, which is what a repeat after a lost
// answer finds.
func (t *tx) settledBefore(ref job.Ref) (out store.SettleResult, err error) {
	id, ok := parseUUID(ref.RunID)
	if !ok {
		return out, nil
	}
	q := t.use(qSettledBefore)
	q.blob(id[:])
	q.text(ref.Worker)
	q.int(ref.Claim)
	if q.step() {
		out = store.SettleResult{Landed: true, RunAt: q.colTime(0)}
	}
	return out, q.end()
}
