package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// claims makes passes until accepting ends: when a wake, a freed slot or a due
// time asks for one, and otherwise ever more rarely.
func (w *Worker) claims(accepting context.Context) {
	c := &claimer{w: w, backoff: loop.Backoff{Floor: pollFloor, Ceiling: pollCeiling}}
	changed := w.wakes.changed()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for accepting.Err() == nil {
		pass, fresh, wait := w.wakes.take()
		if !pass {
			timer.Reset(wait)
			select {
			case <-accepting.Done():
			case <-changed:
			case <-timer.C:
			}
			continue
		}
		if fresh {
			c.backoff.Reset()
		}
		w.wakes.after(c.pass())
	}
}

// claimer is the state of the claim loop; its methods are the loop's.
type claimer struct {
	w        *Worker
	backoff  loop.Backoff
	failures int
	limits   []store.QueueLimit
	got      map[string]int
}

// pass claims once for all queues with free slots, starts what it got without
// waiting for it, and answers how long to wait if nothing happens.
func (c *claimer) pass() time.Duration {
	w := c.w
	s, ok := w.beginRound()
	if !ok {
		return pollFloor // between two sessions; a new one wakes the loop
	}
	defer w.endRound()
	c.limits = w.slots.free(c.limits[:0])
	if len(c.limits) == 0 {
		return pollCeiling // a freed slot wakes the loop
	}
	w.limit.apply(c.limits)
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	began := time.Now()
	res, err := w.cfg.Queue.Claim(ctx, store.ClaimParams{Worker: s.id, Queues: c.limits})
	w.crumb.Store(int64(time.Since(began)))
	w.trouble.claim(err)
	if err != nil {
		c.failed(s, err)
		return pollFloor
	}
	c.failures = 0
	if res.WorkerGone {
		w.lose(s, "the store does not know the worker any more")
		return pollFloor
	}
	c.launch(s, res)
	if len(res.Runs) > 0 {
		c.backoff.Reset()
	}
	c.backoff.Ceiling = pollCeiling
	if w.cfg.Store.Listening() {
		c.backoff.Ceiling = wokenCeiling
	}
	wait := c.backoff.Next()
	if !res.NextDue.IsZero() {
		wait = min(wait, max(res.NextDue.Sub(res.Now), 0)+dueSlack)
	}
	return wait
}

// failed logs a claim that failed. If its answer was lost, runs may be held by
// the session that nobody knows of.
func (c *claimer) failed(s *session, err error) {
	c.failures++
	if loop.Loud(c.failures) {
		c.w.cfg.Logger.Warn("jobs.claim.failed", slog.Any("error", err), slog.Int("in_a_row", c.failures))
	}
	if errors.Is(err, store.ErrUnknown) {
		c.w.retire(s, "the answer of a claim was lost")
	}
}

// launch starts an attempt for each claimed run.
func (c *claimer) launch(s *session, res store.ClaimResult) {
	if c.got == nil {
		c.got = make(map[string]int)
	}
	clear(c.got)
	claimed := time.Now()
	for i := range res.Runs {
		r := &res.Runs[i]
		c.got[r.Queue]++
		a := newAttempt(c.w, s, r, claimed)
		holder, busy := res.Busy[r.ID]
		switch {
		case !busy && c.w.limit.stray(r, c.limits):
			c.w.handBack(a, false)
			c.w.wakes.now()
		case busy && !c.w.hold(a):
			c.w.handBack(a, false)
		case busy:
			c.w.refuse(a, holder)
		case !c.w.slots.take(r.Queue):
			c.w.handBack(a, false)
		case !c.w.hold(a):
			c.w.handBack(a, true)
		default:
			c.w.limit.begun(r)
			c.w.backlog.start(a)
		}
	}
	c.w.slots.claimed(c.limits, c.got)
}

// handBack returns a run that was claimed but will not begin here: the worker
// has begun to drain, or the store handed out more than was asked for.
func (w *Worker) handBack(a *attempt, slot bool) {
	if slot {
		w.slots.release(a.run.Queue)
	}
	w.cfg.Logger.Info("jobs.worker.shed", slog.String("run", a.run.ID), slog.String("queue", a.run.Queue))
	w.cfg.Queue.SettleThen(a.session.ctx, store.SettleParams{Ref: a.ref, Outcome: job.Shed, To: job.Ready},
		func(_ store.SettleResult, err error) {
			if err != nil {
				w.cfg.Logger.Warn("jobs.worker.settle-failed", slog.String("run", a.run.ID), slog.Any("error", err))
				w.retire(a.session, "a run could not be handed back")
			}
		})
}

// beginRound answers the session to claim for, unless the worker does not claim
// now. A drain waits for endRound.
func (w *Worker) beginRound() (*session, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != running || w.current == nil {
		return nil, false
	}
	w.rounds++
	return w.current, true
}

func (w *Worker) endRound() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rounds--
	w.checkQuiet()
}
