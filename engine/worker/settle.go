package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/store"
)

// settle writes a verdict, unless someone who could not wait has given one
// already. Either way the guest has ended, and its slot is free.
func (a *attempt) settle(v verdict, took time.Duration) {
	a.w.limit.ended(a.run)
	if a.begin(false) {
		a.w.refill(a.w.slots.ended(a.run.Queue))
		a.write(v, took)
		return
	}
	a.w.refill(a.w.slots.release(a.run.Queue))
}

// settleOutside gives the verdict on an attempt whose guest does not stop. What
// the guest still tries to write misses its fence, and it keeps its slot until
// it ends.
func (a *attempt) settleOutside(v verdict) {
	if !a.begin(true) {
		return
	}
	a.w.cfg.Logger.Warn("jobs.timeout.abandoned", slog.String("run", a.run.ID), slog.String("job", a.run.Job))
	a.write(v, time.Since(a.claimed))
}

// begin takes the right to give the verdict.
func (a *attempt) begin(outside bool) bool {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.settling {
		return false
	}
	a.settling, a.outside = true, outside
	return true
}

func (a *attempt) write(v verdict, took time.Duration) {
	if v.abandon {
		a.w.cfg.Logger.Debug("jobs.attempt.abandoned", slog.String("run", a.run.ID), slog.Any("cause", v.err))
		if v.letGo {
			a.letGo()
		}
		a.finish()
		return
	}
	if m := a.memory.Load(); m != nil {
		v.params.Log = m.UnsavedLog()
	}
	if p := &v.params; p.To.Terminal() {
		p.Parent = a.run.Parent
		// Who did not come as far as reading the history cannot know.
		p.Invoked = p.Invoked || a.run.Steps > 0 && !v.read
		var err error
		if p.Enqueue, err = a.w.cfg.Queue.Follow(a.run, p.Outcome, p.To, p.Error, p.Output); err != nil {
			a.settled(v, store.SettleResult{}, err, took)
			return
		}
	}
	if a.w.limit.limited(a.run.Queue) && !a.w.Leased() {
		v.params.Wake = a.run.Queue // this process claims no more: others are to
	}
	a.w.cfg.Queue.SettleThen(a.session.ctx, v.params, func(res store.SettleResult, err error) {
		a.settled(v, res, err, took)
	})
}

// letGo has the store know that a cancelled run, which is to be undone, need not
// wait for this worker. If it does not hear, it waits for as long as the lease has.
func (a *attempt) letGo() {
	ctx, cancel := context.WithTimeout(a.session.ctx, claimTimeout)
	defer cancel()
	if err := a.w.cfg.Store.LetGo(ctx, a.ref); err != nil {
		a.w.cfg.Logger.Debug("jobs.attempt.not-let-go", slog.String("run", a.run.ID), slog.Any("error", err))
	}
}

// settled is called by the queue's writer with the store's answer. A settle
// that failed is left to the lease, which is the session's and must therefore
// end: the run will be claimed again, and work that was done is never reported
// as failed.
func (a *attempt) settled(v verdict, res store.SettleResult, err error, took time.Duration) {
	w, p := a.w, v.params
	switch {
	case err != nil:
		w.cfg.Metrics.SettleFailed()
		w.cfg.Logger.Error("jobs.worker.settle-failed", slog.String("run", a.run.ID),
			slog.String("outcome", string(p.Outcome)), slog.Any("error", err))
		w.forsake(a.session)
	case !res.Landed:
		w.cfg.Metrics.SettleUnowned()
		w.cfg.Logger.Warn("jobs.settle.unowned", slog.String("run", a.run.ID),
			slog.String("outcome", string(p.Outcome)), slog.Int64("claim", a.ref.Claim))
	default:
		w.cfg.Metrics.Attempt(a.run.Queue, a.label(), p.Outcome, took)
		a.report(v, res, took)
		if !res.RunAt.IsZero() {
			a.hint(res.RunAt)
		}
		if w.limit.limited(a.run.Queue) {
			// Another may have waited for what it held.
			w.wakes.due(time.Now().Add(limitWait))
		}
		if w.cfg.Settled != nil {
			w.cfg.Settled(a.run.ID, p.To)
		}
	}
	a.finish()
}

// label is the run's job in metrics.
func (a *attempt) label() string {
	if a.w.cfg.Deploy.Manifest().Jobs[a.run.Job] == nil {
		return metrics.Undeclared
	}
	return a.run.Job
}

// finish forgets the attempt. One that was settled from outside has no verdict
// waiting: its guest still has the slot.
func (a *attempt) finish() {
	w := a.w
	w.mu.Lock()
	delete(a.session.held, a.ref)
	w.attempts--
	last := a.session.retiring && len(a.session.held) == 0 && !a.session.over
	outside := a.outside
	w.checkQuiet()
	w.mu.Unlock()
	if last {
		go w.leave(a.session)
	}
	if !outside {
		w.refill(w.slots.settled(a.run.Queue))
	}
}

// refill makes the claim loop look if it has waited for room: now if there is
// enough, and otherwise soon, when there will be more or no more to wait for.
func (w *Worker) refill(waiting, enough bool) {
	switch {
	case waiting && enough:
		w.wakes.slot()
	case waiting:
		wait := min(max(time.Duration(w.crumb.Load()), crumbFloor), crumbCeiling)
		w.wakes.due(time.Now().Add(wait))
	}
}

// hint makes the claim loop look when the run is due again, if that is soon.
func (a *attempt) hint(due time.Time) {
	now := a.run.ClaimedAt.Add(time.Since(a.claimed)) // the store's, as far as we know
	if d := due.Sub(now); d < dueHorizon {
		a.w.wakes.due(time.Now().Add(max(d, 0) + dueSlack))
	}
}

// maxLogged bounds a failure's text in a log line; the run keeps more of it.
const maxLogged = 1 << 10

// report logs how an attempt ended: failures for people, the rest for those who
// ask for it.
func (a *attempt) report(v verdict, res store.SettleResult, took time.Duration) {
	level, event := slog.LevelDebug, "jobs.attempt.settled"
	switch v.params.Outcome {
	case job.DeadLettered, job.Dropped:
		level, event = slog.LevelError, "jobs.attempt.failed"
	case job.Retried, job.Deferred, job.Unwinding:
		level, event = slog.LevelWarn, "jobs.attempt.failed"
	case job.Refused:
		level, event = slog.LevelWarn, "jobs.attempt.refused"
	case job.Interrupted:
		level, event = slog.LevelInfo, "jobs.attempt.interrupted"
	}
	log := a.w.cfg.Logger
	if !log.Enabled(context.Background(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("run", a.run.ID), slog.String("job", a.run.Job), slog.Int("attempt", a.run.Attempt),
		slog.String("outcome", string(v.params.Outcome)), slog.Duration("took", took),
	}
	if e := v.params.Error; e != nil {
		attrs = append(attrs, slog.String("code", e.Code), slog.String("error", e.Message[:min(len(e.Message), maxLogged)]))
	}
	if v.stop != "" {
		attrs = append(attrs, slog.String("stop", string(v.stop)))
	}
	if !res.RunAt.IsZero() {
		attrs = append(attrs, slog.Time("run_at", res.RunAt))
	}
	if v.err != nil {
		attrs = append(attrs, slog.Any("cause", v.err))
	}
	log.LogAttrs(context.Background(), level, event, attrs...)
}
