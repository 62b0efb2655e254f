package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// heartbeat renews a session's lease until it is lost or the session leaves.
// Everything is measured on this process's clock, from the start of a renewal:
// comparing with the store's would make each decision one about clock skew.
func (w *Worker) heartbeat(s *session) {
	defer close(s.beats)
	timer := time.NewTimer(w.renewIn(s))
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.ctx.Done():
			return
		case <-timer.C:
		}
		left := w.cfg.Lease - time.Since(s.began)
		if left <= 0 {
			w.lose(s, "no renewal landed for a whole lease")
			return
		}
		began := time.Now()
		p := w.renewal(s)
		res, err := w.renew(s, p, left)
		if errors.Is(err, errStopped) {
			return
		}
		w.beat(err)
		switch {
		case time.Since(s.began) >= w.cfg.Lease:
			// Too late even if it landed: others may have acted on the lapse.
			w.lose(s, "no renewal landed within a whole lease")
			return
		case err != nil:
			w.cfg.Logger.Warn("jobs.heartbeat.failed", slog.String("worker", s.id), slog.Any("error", err))
			// No later than the lease ends: then the attempts are to stop.
			timer.Reset(min(w.cfg.Lease/10, w.cfg.Lease-time.Since(s.began)))
			continue
		case !res.Alive:
			w.lose(s, "its row has lapsed")
			return
		}
		s.began = began
		w.announced(s, p)
		for _, l := range res.Lost {
			w.lostRun(s, l)
		}
		w.giveUpStuck(s)
		w.saveLogs(s)
		timer.Reset(w.renewIn(s))
	}
}

var errStopped = errors.New("the session is over")

// renew asks the store once. A call that hangs is ended early enough for
// another try; one that does not heed its end is waited for no longer than
// left, since two at a time could land in either order.
func (w *Worker) renew(s *session, p store.RenewParams, left time.Duration) (store.RenewResult, error) {
	type answer struct {
		res store.RenewResult
		err error
	}
	ctx, cancel := context.WithTimeout(s.ctx, min(left, w.cfg.Lease/6))
	defer cancel()
	c := make(chan answer, 1)
	go func() {
		res, err := w.cfg.Store.Renew(ctx, p)
		c <- answer{res, err}
	}()
	expiry := time.NewTimer(left)
	defer expiry.Stop()
	select {
	case a := <-c:
		if a.err != nil && s.ctx.Err() != nil {
			return store.RenewResult{}, errStopped // it is what ended the call
		}
		return a.res, a.err
	case <-expiry.C:
		return store.RenewResult{}, context.DeadlineExceeded
	case <-s.ctx.Done():
	case <-s.stop:
	}
	return store.RenewResult{}, errStopped
}

// renewal is what a session has to say: what it holds and has not begun to
// settle, and of its queues and of progress what the store does not know yet.
func (w *Worker) renewal(s *session) store.RenewParams {
	p := store.RenewParams{Worker: s.id, Lease: w.cfg.Lease}
	if queues := w.slots.list(); !slices.Equal(queues, s.queues) {
		p.Queues = queues
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.Held = make([]job.Ref, 0, len(s.held))
	for ref, a := range s.held {
		if a.settling {
			continue
		}
		p.Held = append(p.Held, ref)
		if now := a.progress(); now != nil && (a.told == nil || *now != *a.told) {
			p.Progress = append(p.Progress, store.HeldProgress{Ref: ref, Progress: *now})
		}
	}
	return p
}

// announced notes what the store knows once p has landed.
func (w *Worker) announced(s *session, p store.RenewParams) {
	if p.Queues != nil {
		s.queues = p.Queues
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range p.Progress {
		if a := s.held[h.Ref]; a != nil {
			a.told = &h.Progress
		}
	}
}

// progress is what the handler reported last; nil if it did not.
func (a *attempt) progress() *job.Progress {
	if m := a.memory.Load(); m != nil {
		return m.LastProgress()
	}
	return nil
}

// giveUpStuck gives the verdict on attempts that were told to stop before the
// last heartbeat and still run: a host that cannot stop its guest must not keep
// the run from everyone else.
func (w *Worker) giveUpStuck(s *session) {
	w.mu.Lock()
	var stuck []*attempt
	for _, a := range s.held {
		if a.settling || a.ctx.Err() == nil {
			continue
		}
		if a.doomed {
			stuck = append(stuck, a)
		}
		a.doomed = true
	}
	w.mu.Unlock()
	for _, a := range stuck {
		a.settleOutside(a.stuck(nil))
	}
}

// lostRun aborts the attempt of a run that is not its session's any more. One
// that has begun to settle since the renewal was sent is no loss: its run is
// not running because it ended.
func (w *Worker) lostRun(s *session, l store.LostRun) {
	w.mu.Lock()
	a, ok := s.held[l.Ref]
	ok = ok && !a.settling
	w.mu.Unlock()
	if !ok {
		return
	}
	if l.State == job.Cancelled {
		a.cancel(cancelled())
		return
	}
	w.cfg.Metrics.LeaseLost(a.run.Queue)
	w.cfg.Logger.Error("jobs.lease.lost", slog.String("worker", s.id), slog.String("run", l.Ref.RunID), slog.String("state", string(l.State)))
	a.cancel(&abi.Error{Code: job.CodeLeaseLost, Message: "the run's claim is no longer this worker's"})
}

func cancelled() error {
	return &abi.Error{Code: job.CodeCancelled, Message: "the run was cancelled"}
}

// Cancelled aborts the attempt of a run that this process knows to be
// cancelled, before the next renewal says so.
func (w *Worker) Cancelled(runID string) {
	w.mu.Lock()
	var found []*attempt
	for s := range w.sessions {
		for ref, a := range s.held {
			if ref.RunID == runID && !a.settling {
				found = append(found, a)
			}
		}
	}
	w.mu.Unlock()
	for _, a := range found {
		a.cancel(cancelled())
	}
}
