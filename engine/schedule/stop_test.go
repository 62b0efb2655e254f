package schedule_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/schedule"
)

// The round under way is waited for, fires nothing more, and only then are its
// leases given up.
func TestAStopWaitsForTheRoundAndThenReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("a", "0 * * * *", nil), every("b", "0 * * * *", nil))
		var mu sync.Mutex
		var order []string
		r.db.Between = func(_ context.Context, op string, call func() error) error {
			if op == "FireSchedule" {
				time.Sleep(5 * time.Second)
			}
			mu.Lock()
			order = append(order, op)
			mu.Unlock()
			return call()
		}
		s := r.start(nil)
		r.pass(time.Hour + time.Second) // a second into the fire of a
		mu.Lock()
		order = nil
		mu.Unlock()
		began := time.Now()
		r.stop(s)
		if took := time.Since(began); took < 3900*time.Millisecond || took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(order) != 2 || order[0] != "FireSchedule" || order[1] != "ReleaseSchedules" {
			t.Errorf("it did %q", order)
		}
		r.want("a", "01-01 01:00")
		r.want("b")
		if row := r.row("b"); row.Holder != "" {
			t.Errorf("%s still leads", row.Holder)
		}
	})
}

// Nor does a catch-up go on.
func TestAStopEndsACatchUpBetweenTwoFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", catchUp("run-all")))
		r.stop(r.start(nil))
		r.until("01-01 05:30")
		r.db.Between = func(_ context.Context, op string, call func() error) error {
			if op == "FireSchedule" {
				time.Sleep(5 * time.Second)
			}
			return call()
		}
		s := r.start(nil)
		r.pass(time.Second) // into the first of five fires
		r.stop(s)
		r.want("s", "01-01 01:00")
		r.start(nil)
		r.pass(time.Minute)
		r.want("s", "01-01 01:00", "01-01 02:00", "01-01 03:00", "01-01 04:00", "01-01 05:00")
	})
}

// A round that is given up may have a fire on its way: its leases lapse.
func TestARoundThatIsGivenUpDoesNotRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", nil))
		r.db.Between = func(ctx context.Context, op string, call func() error) error {
			if op == "FireSchedule" {
				<-ctx.Done()
				return ctx.Err()
			}
			return call()
		}
		s := r.start(nil)
		r.pass(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		r.must(s.Stop(ctx))
		if n := r.db.Count("ReleaseSchedules"); n != 0 {
			t.Errorf("it gave its leases up %d times", n)
		}
		if row := r.row("s"); row.Holder != s.Holder() {
			t.Errorf("%q leads", row.Holder)
		}
		if r.events.Count("schedule.drain-abandoned") != 1 {
			t.Error("nobody was told")
		}
		next := r.start(over(r.view()))
		r.pass(schedule.DefaultLease * 4 / 3)
		if row := r.row("s"); row.Holder != next.Holder() {
			t.Errorf("%q leads", row.Holder)
		}
		r.want("s", "01-01 01:00")
	})
}

// A release that fails or hangs stops it all the same; another leads once the
// lease has lapsed.
func TestAReleaseThatFailsStopsItAllTheSame(t *testing.T) {
	for name, release := range map[string]func(ctx context.Context) error{
		"fails": func(context.Context) error { return enginetest.Away() },
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, every("s", "* * * * *", nil))
				view := r.view()
				view.Between = func(ctx context.Context, op string, call func() error) error {
					if op == "ReleaseSchedules" {
						return release(ctx)
					}
					return call()
				}
				s := r.start(over(view))
				r.must(s.Stop(t.Context()))
				if r.events.Count("schedule.release-failed") != 1 {
					t.Error("nobody was told")
				}
				r.start(over(r.view()))
				r.pass(2 * time.Minute)
				r.want("s", "01-01 00:01", "01-01 00:02")
			})
		})
	}
}

func TestAStopThatIsNotNoticedSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", nil))
		stuck := make(chan struct{})
		r.db.Between = func(_ context.Context, op string, call func() error) error {
			if op == "FireSchedule" {
				<-stuck
			}
			return call()
		}
		s := r.idle(nil)
		r.must(s.Start())
		r.pass(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Stop(ctx); abi.CodeOf(err) != job.CodeDraining {
			t.Errorf("it answered %v", err)
		}
		// Nor can it be started while it is being stopped.
		if err := s.Start(); abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("a start meanwhile answered %v", err)
		}
		close(stuck)
		r.must(s.Stop(t.Context()))
	})
}

func TestItStartsOnceAndAgainAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "* * * * *", nil))
		s := r.idle(nil)
		r.must(s.Stop(t.Context())) // which has not begun
		s.Quiesce()
		r.must(s.Start())
		if err := s.Start(); abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("a second start answered %v", err)
		}
		r.pass(time.Minute)
		s.Quiesce()
		r.pass(time.Minute)
		r.must(s.Stop(t.Context()))
		r.must(s.Stop(t.Context()))
		r.want("s", "01-01 00:01")
		r.must(s.Start())
		r.pass(time.Minute)
		r.must(s.Stop(t.Context()))
		r.want("s", "01-01 00:01", "01-01 00:02", "01-01 00:03")
	})
}

func TestAConfigIsChecked(t *testing.T) {
	db := &enginetest.Store{}
	m := func() *manifest.Manifest { return &manifest.Manifest{} }
	q := queue.New(queue.Config{Store: db, Manifest: m})
	for name, cfg := range map[string]schedule.Config{
		"no store":    {Queue: q, Manifest: m},
		"no queue":    {Store: db, Manifest: m},
		"no manifest": {Store: db, Queue: q},
		"short":       {Store: db, Queue: q, Manifest: m, Lease: time.Millisecond},
		"negative":    {Store: db, Queue: q, Manifest: m, Lease: -time.Minute},
		"long":        {Store: db, Queue: q, Manifest: m, Lease: 2 * time.Hour},
	} {
		if _, err := schedule.New(cfg); abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
