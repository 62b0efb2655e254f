package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
)

// When a relay that found nothing looks again: after pollFloor, then ever more
// rarely. With wakes proven, polling is for what they miss.
const (
	pollFloor       = 200 * time.Millisecond
	pollCeiling     = 2500 * time.Millisecond // at most 24 statements a minute
	listenedCeiling = 6 * time.Second         // at most 10
)

// How often a relay counts and purges.
const (
	countBusy  = 15 * time.Second // while something waits
	countIdle  = 2 * time.Minute
	purgeEvery = 10 * time.Minute
	purgeLimit = 1000 // rows at a time, so that a pass is not delayed for long
)

// keeperTimeout bounds a count or a purge.
const keeperTimeout = 15 * time.Second

// loop makes passes until nothing more is to be claimed.
func (r *Relay) loop(l *loop.Life) {
	defer r.cfg.Outbox.Wakes(r.Wake)()
	w := &watch{r: r, backoff: loop.Backoff{Floor: pollFloor}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for l.Accepting.Err() == nil {
		res, err := r.Pass(l.Ctx)
		if err != nil {
			w.failed(l.Ctx, err)
			// Wakes are not heeded: what fails would fail as often as they come.
			loop.Sleep(l.Accepting, loop.Jitter(pollFloor))
			continue
		}
		w.worked()
		w.keep(l.Accepting, res)
		if res.Claimed > 0 {
			w.backoff.Reset()
			continue
		}
		timer.Reset(w.wait())
		select {
		case <-l.Accepting.Done():
		case <-r.kick:
			w.backoff.Reset()
		case <-timer.C:
		}
	}
}

// watch is the state of a loop; its methods are the loop's.
type watch struct {
	r        *Relay
	backoff  loop.Backoff
	failures int

	waiting  bool // rows, when they were last counted
	counted  time.Time
	purged   time.Time
	hangover bool // the last purge left some
	failing  int  // counts and purges in a row
}

// wait is how long nothing is looked for after a pass that found nothing.
func (w *watch) wait() time.Duration {
	w.backoff.Ceiling = pollCeiling
	if w.r.cfg.Outbox.Listening() {
		w.backoff.Ceiling = listenedCeiling
	}
	return w.backoff.Next()
}

func (w *watch) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // we ended it
	}
	w.failures++
	w.r.cfg.Metrics.Failed(w.r.cfg.Name)
	if loop.Loud(w.failures) {
		w.r.cfg.Logger.Warn("outbox.pass-failed", slog.Any("error", err), slog.Int("in_a_row", w.failures))
	}
}

func (w *watch) worked() {
	if w.failures > 0 {
		w.r.cfg.Logger.Info("outbox.recovered", slog.Int("failed", w.failures))
	}
	w.failures = 0
}

// keep counts and purges when it is time.
func (w *watch) keep(ctx context.Context, res Result) {
	now := time.Now()
	every := countIdle
	if w.waiting || res.Claimed > 0 {
		every = countBusy
	}
	if w.counted.IsZero() || now.Sub(w.counted) >= every {
		w.counted = now
		w.told(ctx, "outbox.count-failed", w.count(ctx))
	}
	if w.r.cfg.Keep > 0 && (w.purged.IsZero() || w.hangover || now.Sub(w.purged) >= purgeEvery) {
		w.purged = now
		w.told(ctx, "outbox.purge-failed", w.purge(ctx))
	}
}

// told logs what is no reason to stop.
func (w *watch) told(ctx context.Context, event string, err error) {
	switch {
	case err == nil:
		w.failing = 0
	case ctx.Err() == nil:
		w.failing++
		if loop.Loud(w.failing) {
			w.r.cfg.Logger.Warn(event, slog.Any("error", err))
		}
	}
}

func (w *watch) count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keeperTimeout)
	defer cancel()
	s, err := w.r.cfg.Outbox.OutboxStats(ctx)
	if err != nil {
		return err
	}
	w.waiting = s.Waiting > 0
	w.r.cfg.Metrics.Backlog(w.r.cfg.Name, s.Waiting, s.Rejected, s.Oldest)
	return nil
}

func (w *watch) purge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keeperTimeout)
	defer cancel()
	n, err := w.r.cfg.Outbox.Purge(ctx, w.r.cfg.Keep, purgeLimit)
	w.hangover = err == nil && n == purgeLimit
	return err
}
