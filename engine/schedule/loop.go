package schedule

import (
	"context"
	"log/slog"
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
)

// How long a round that failed is followed by nothing.
const (
	failFloor   = time.Second
	failCeiling = 30 * time.Second
)

// releaseTimeout bounds giving the leases up.
const releaseTimeout = 5 * time.Second

// loop makes rounds until it is to end, then gives the leases up.
func (s *Scheduler) loop(l *loop.Life) {
	defer s.release(l)
	backoff := loop.Backoff{Floor: failFloor, Ceiling: failCeiling}
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.Accepting.Done():
		case <-s.kick:
		case <-timer.C:
		}
		if l.Accepting.Err() != nil { // also when both have happened
			return
		}
		res, err := s.round(l.Ctx, l.Accepting)
		switch {
		case err == nil:
			if failures > 0 {
				s.cfg.Logger.Info("schedule.recovered", slog.Int("failed", failures))
			}
			failures = 0
			backoff.Reset()
			timer.Reset(max(0, time.Until(res.Again)))
		case l.Accepting.Err() != nil:
			// We ended it.
		default:
			failures++
			if loop.Loud(failures) {
				s.cfg.Logger.Warn("schedule.round-failed", slog.Any("error", err), slog.Int("in_a_row", failures))
			}
			timer.Reset(loop.Jitter(backoff.Next()))
		}
	}
}

// release gives the leases up, unless the round before it was given up. What
// goes wrong is logged: they lapse by themselves.
func (s *Scheduler) release(l *loop.Life) {
	led := s.forget()
	if led == 0 || l.Ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.Ctx, releaseTimeout)
	defer cancel()
	if err := s.cfg.Store.ReleaseSchedules(ctx, s.holder); err != nil {
		s.cfg.Logger.Warn("schedule.release-failed", slog.Any("error", err), slog.Int("schedules", led),
			slog.String("fix", "nothing: another process leads them once the leases have lapsed"))
	}
}
