package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/store"
)

// sweep starts what every worker does for the whole queue, until life ends:
// take back the runs of dead workers, delete what has outlived its retention,
// and publish the gauges. Several workers doing it at once is harmless.
func (w *Worker) sweep(life *lifetime) {
	life.loops.Go(func() {
		if err := w.reclaim(life.ctx); life.ctx.Err() == nil {
			w.failedRound("jobs.reclaim.failed")(err, 1)
		}
		w.every(life.ctx, w.cfg.Lease/3, "jobs.reclaim.failed", w.reclaim)
	})
	life.loops.Go(func() { w.every(life.ctx, purgeEvery, "jobs.purge.failed", w.purge) })
	life.loops.Go(func() { w.every(life.ctx, gaugeEvery, "jobs.gauges.failed", w.gauge) })
	aged := map[string]time.Time{}
	life.loops.Go(func() {
		w.every(life.ctx, ageTick, "jobs.age.failed", func(ctx context.Context) error { return w.age(ctx, aged) })
	})
}

func (w *Worker) every(life context.Context, interval time.Duration, event string, round func(context.Context) error) {
	loop.Every(life, loop.EveryParams{Interval: interval, Round: round, Failed: w.failedRound(event)})
}

func (w *Worker) failedRound(event string) func(error, int) {
	return func(err error, inARow int) {
		if err != nil && loop.Loud(inARow) {
			w.cfg.Logger.Warn(event, slog.Any("error", err), slog.Int("in_a_row", inARow))
		}
	}
}

// reclaim ends the claims of workers whose lease has lapsed.
func (w *Worker) reclaim(ctx context.Context) error {
	p := store.ReclaimParams{
		Limit: sweepLimit, MaxOrphans: w.cfg.MaxOrphans, Retention: map[string]time.Duration{},
		Follow: func(r job.Run) ([]store.EnqueueParams, error) {
			return w.cfg.Queue.Follow(&r, job.Orphaned, r.State, &r.Error, nil)
		},
	}
	for name, j := range w.cfg.Deploy.Manifest().Jobs {
		p.Retention[name] = j.Retention
		if !j.Retry.DeadLetter {
			p.DropJobs = append(p.DropJobs, name)
		}
		if j.Compensates {
			p.UnwindJobs = append(p.UnwindJobs, name)
		}
	}
	for ctx.Err() == nil {
		res, err := w.cfg.Store.Reclaim(ctx, p)
		if err != nil {
			return err
		}
		for i := range res.Requeued {
			w.reclaimed(&res.Requeued[i], false)
		}
		for i := range res.Buried {
			w.reclaimed(&res.Buried[i], true)
		}
		if len(res.Requeued)+len(res.Buried) < p.Limit {
			return nil
		}
	}
	return nil
}

// reclaimed reports one run. That its worker died is not a failure of the run,
// unless no attempt is left.
func (w *Worker) reclaimed(r *job.Run, buried bool) {
	w.cfg.Metrics.Orphaned(r.Queue, r.State)
	attrs := []any{slog.String("run", r.ID), slog.String("job", r.Job), slog.Int("attempt", r.Attempt), slog.Int("orphans", r.Orphans)}
	if !buried {
		w.cfg.Logger.Warn("jobs.reclaim.requeued", attrs...)
		return
	}
	w.cfg.Logger.Error("jobs.claim.exhausted", append(attrs, slog.String("code", r.Error.Code))...)
	if w.cfg.Settled != nil {
		w.cfg.Settled(r.ID, r.State)
	}
}

// purge deletes finished runs, in bounded statements, until none is left that
// has expired.
func (w *Worker) purge(ctx context.Context) error {
	for ctx.Err() == nil {
		n, err := w.cfg.Store.Purge(ctx, sweepLimit)
		if err != nil {
			return err
		}
		w.cfg.Metrics.Purged(n)
		if n < sweepLimit {
			break
		}
	}
	for ctx.Err() == nil {
		n, err := w.cfg.Store.PurgeEvents(ctx, sweepLimit)
		if err != nil {
			return err
		}
		if n < sweepLimit {
			break
		}
	}
	return nil
}

// age lets runs that have been ready for as long as their queue allows go before
// every priority. It looks at each queue ten times in that time, but not more often
// than every ageTick nor more rarely than once a minute. aged is when it did.
func (w *Worker) age(ctx context.Context, aged map[string]time.Time) error {
	queues := w.cfg.Deploy.Manifest().Queues
	for _, name := range w.slots.list() {
		after := queues[name].AgeAfter
		if after == 0 || time.Since(aged[name]) < min(after/10, time.Minute) {
			continue
		}
		aged[name] = time.Now()
		for ctx.Err() == nil {
			n, err := w.cfg.Store.Age(ctx, store.AgeParams{Queue: name, Waited: after, Limit: sweepLimit})
			if err != nil {
				return err
			}
			if n < sweepLimit {
				break
			}
		}
	}
	return nil
}

// gauge publishes what the store counts. A queue that is served, or was seen
// before, and has no runs is published as empty: a gauge that stays at its last
// value, or is not there at all, says something else.
func (w *Worker) gauge(ctx context.Context) error {
	if w.cfg.Metrics == nil {
		return nil
	}
	s, err := w.cfg.Store.Stats(ctx)
	if err != nil {
		return err
	}
	w.cfg.Metrics.Workers(s.Workers)
	var oldest time.Duration
	if !s.OldestEvent.IsZero() {
		oldest = s.Now.Sub(s.OldestEvent)
	}
	w.cfg.Metrics.Events(s.Events, oldest)
	counts := make(map[string]metrics.QueueCounts, len(s.Queues))
	for name := range w.counted {
		counts[name] = metrics.QueueCounts{}
	}
	for _, name := range w.slots.list() {
		counts[name] = metrics.QueueCounts{}
	}
	for _, q := range s.Queues {
		c := metrics.QueueCounts{Ready: q.Ready, Running: q.Running, Dead: q.Dead}
		if !q.OldestDue.IsZero() {
			c.Oldest = s.Now.Sub(q.OldestDue)
		}
		name := q.Queue
		if _, known := counts[name]; !known && len(counts) >= maxQueueGauges {
			name = metrics.Others
			all := counts[name]
			c.Ready, c.Running, c.Dead, c.Oldest = c.Ready+all.Ready, c.Running+all.Running, c.Dead+all.Dead, max(c.Oldest, all.Oldest)
		}
		counts[name] = c
	}
	for name, c := range counts {
		w.cfg.Metrics.Queue(name, c)
	}
	w.counted = counts
	return nil
}
