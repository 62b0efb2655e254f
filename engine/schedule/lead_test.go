package schedule_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/schedule"
	"github.com/jobrunner/runner/engine/store"
)

func pause(name string) store.ScheduleParams {
	return store.ScheduleParams{Name: name, By: "ann"}
}

// over gives a scheduler a view of the database of its own, to be disturbed.
func over(db *enginetest.Store) func(*schedule.Config) {
	return func(c *schedule.Config) { c.Store = db }
}

func (r *rig) view() *enginetest.Store { return &enginetest.Store{Store: r.db.Store} }

func TestOneOfSeveralFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "*/10 * * * *", nil))
		views := []*enginetest.Store{r.view(), r.view(), r.view()}
		for _, v := range views {
			r.start(over(v))
		}
		r.pass(time.Hour)
		r.want("s", "01-01 00:10", "01-01 00:20", "01-01 00:30", "01-01 00:40", "01-01 00:50", "01-01 01:00")
		if a, b, c := views[0].Count("FireSchedule"), views[1].Count("FireSchedule"), views[2].Count("FireSchedule"); a != 6 || b+c != 0 {
			t.Errorf("they fired %d, %d and %d times", a, b, c)
		}
	})
}

// A standby fires what is due once the leader has stopped, or has been silent for
// as long as its lease.
func TestAStandbyTakesOver(t *testing.T) {
	for _, c := range []struct {
		name string
		dies bool
		took time.Duration
	}{
		{"after a stop", false, schedule.DefaultLease/3 + 2*time.Second},
		{"after a death", true, schedule.DefaultLease*4/3 + 2*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, every("s", "* * * * *", nil))
				var dead atomic.Bool
				leads := r.view()
				leads.Between = func(_ context.Context, _ string, call func() error) error {
					if dead.Load() {
						return enginetest.Away()
					}
					return call()
				}
				first := r.start(over(leads))
				second := r.start(over(r.view()))
				r.pass(5*time.Minute + time.Second)
				if row := r.row("s"); row.Holder != first.Holder() {
					t.Fatalf("%s leads", row.Holder)
				}
				if c.dies {
					dead.Store(true)
				} else {
					r.stop(first)
				}
				r.pass(c.took)
				if row := r.row("s"); row.Holder != second.Holder() {
					t.Errorf("after %v %s leads", c.took, row.Holder)
				}
				r.pass(2 * time.Minute)
				if n := len(r.occurrences("s")); n < 7 {
					t.Errorf("%d occurrences have fired", n)
				}
			})
		})
	}
}

func TestOneThatIsAloneDoesNotWaitForTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", nil))
		if _, err := r.idle(nil).Round(t.Context()); err != nil { // and is killed
			t.Fatal(err)
		}
		second := r.start(func(c *schedule.Config) { c.Alone = true })
		if row := r.row("s"); row.Holder != second.Holder() {
			t.Errorf("%s leads", row.Holder)
		}
		// Only when it begins: another that takes over later is left in peace.
		third := r.start(func(c *schedule.Config) { c.Alone = true })
		for range 30 {
			r.pass(time.Second)
			if row := r.row("s"); row.Holder != third.Holder() {
				t.Fatalf("%s leads", row.Holder)
			}
		}
	})
}

// Processes that live shorter than the period lose no occurrence.
func TestRestartsMoreFrequentThanThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", nil))
		for range 24 * 3 {
			s := r.start(nil)
			r.pass(19 * time.Minute)
			r.stop(s)
			r.pass(time.Minute)
		}
		r.start(nil)
		if n := len(r.occurrences("s")); n != 24 {
			t.Errorf("%d occurrences have fired in 24 hours", n)
		}
	})
}

// believer is a store that tells every scheduler that it leads.
type believer struct{ store.Schedules }

func (b believer) LeadSchedules(ctx context.Context, p store.LeadParams) (store.LeadResult, error) {
	p.Holder = "both"
	return b.Schedules.LeadSchedules(ctx, p)
}

func (b believer) FireSchedule(ctx context.Context, p store.FireParams) (store.FireResult, error) {
	p.Holder = "both"
	return b.Schedules.FireSchedule(ctx, p)
}

func TestTwoThatBothBelieveToLeadFireOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("a", "* * * * *", nil), every("b", "*/2 * * * *", catchUp("run-all")))
		for range 2 {
			r.start(func(c *schedule.Config) { c.Store = believer{r.db} })
		}
		r.pass(2*time.Hour + time.Second)
		for name, want := range map[string]int{"a": 120, "b": 60} {
			got := r.occurrences(name)
			seen := map[string]bool{}
			for _, o := range got {
				if seen[o] {
					t.Errorf("%s fired %s twice", name, o)
				}
				seen[o] = true
			}
			if len(seen) != want {
				t.Errorf("%s fired %d occurrences, want %d", name, len(seen), want)
			}
		}
		if r.events.Count("schedule.fire-missed") == 0 {
			t.Error("they never met")
		}
	})
}

// Two manifests share a database: each has its own fired, and one of them what
// both declare.
func TestTwoManifestsOnOneDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, m := range []*manifest.Manifest{
			declaring(every("a", "0 * * * *", nil), every("shared", "0 * * * *", nil)),
			declaring(every("b", "30 * * * *", nil), every("shared", "0 * * * *", nil)),
		} {
			r.start(func(c *schedule.Config) { c.Manifest = func() *manifest.Manifest { return m } })
		}
		r.until("01-01 02:15")
		r.want("a", "01-01 01:00", "01-01 02:00")
		r.want("b", "01-01 00:30", "01-01 01:30")
		r.want("shared", "01-01 01:00", "01-01 02:00")
	})
}

// A row that no manifest declares stays, and is not fired.
func TestARowWithoutAScheduleIsNotFired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("gone", "0 * * * *", nil))
		r.stop(r.start(nil))
		r.m.Store(declaring(every("s", "0 * * * *", nil)))
		r.start(nil)
		r.until("01-01 02:15")
		r.want("gone")
		r.want("s", "01-01 01:00", "01-01 02:00")
		if row := r.row("gone"); row.Holder != "" || row.Fires != 0 {
			t.Errorf("row %+v", row)
		}
	})
}

// The answer to a fire is lost: it is not fired again.
func TestAFireWhoseAnswerIsLostIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", catchUp("run-all")))
		lose := 1
		r.db.Between = func(_ context.Context, op string, call func() error) error {
			if op == "FireSchedule" && lose > 0 {
				lose--
				return enginetest.Lost(call)
			}
			return call()
		}
		r.start(nil)
		r.until("01-01 02:30")
		r.want("s", "01-01 01:00", "01-01 02:00")
		if n := r.db.Count("FireSchedule"); n != 2 {
			t.Errorf("it was tried %d times", n)
		}
	})
}

// While the database is away nothing is fired, and then what was due.
func TestADatabaseThatIsAwayIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", nil))
		var away atomic.Bool
		r.db.Between = func(_ context.Context, _ string, call func() error) error {
			if away.Load() {
				return enginetest.Away()
			}
			return call()
		}
		r.start(nil)
		r.until("01-01 00:30")
		away.Store(true)
		r.until("01-01 02:30")
		r.want("s")
		if n := r.events.Count("schedule.round-failed"); n == 0 || n > 12 {
			t.Errorf("%d lines of an outage of two hours", n)
		}
		away.Store(false)
		r.pass(40 * time.Second)
		r.want("s", "01-01 02:00")
		if r.events.Count("schedule.recovered") != 1 {
			t.Error("nobody was told that it is over")
		}
	})
}

// Before each schedule the lease is asked for anew once it is time to.
func TestALongRoundRenewsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("a", "0 * * * *", nil), every("b", "0 * * * *", nil), every("c", "0 * * * *", nil))
		slow := r.view()
		slow.Between = func(_ context.Context, op string, call func() error) error {
			if op == "FireSchedule" {
				time.Sleep(14 * time.Second)
			}
			return call()
		}
		first := r.start(over(slow))
		r.start(over(r.view()))
		r.pass(time.Hour + time.Minute)
		for _, name := range []string{"a", "b", "c"} {
			r.want(name, "01-01 01:00")
			if row := r.row(name); row.Holder != first.Holder() {
				t.Errorf("%s is led by %s", name, row.Holder)
			}
		}
	})
}

// Faults of every kind, schedulers that come and go: each occurrence has its runs
// once, and none is left out.
func TestEachOccurrenceOnceWhateverFails(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "*/5 * * * *", catchUp("run-all")), every("t", "*/7 * * * *", func(s *manifest.Schedule) { s.CatchUp, s.MaxCatchUp = "run-all", 2 }))
		random := rand.New(rand.NewPCG(seed, 1))
		faults := &enginetest.Sometimes{Rand: random.Float64, Refuse: 0.2, Lose: 0.2, Break: 0.1, Delay: 3 * time.Second}
		turn := rand.New(rand.NewPCG(seed, 2))
		for range 40 {
			db := r.view()
			db.Between = faults.Between
			var some []*schedule.Scheduler
			for range 1 + turn.IntN(3) {
				some = append(some, r.start(over(db)))
			}
			r.pass(time.Duration(turn.Int64N(int64(20 * time.Minute))))
			for _, s := range some {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(turn.Int64N(int64(time.Minute))))
				if err := s.Stop(ctx); err != nil {
					t.Error(err)
				}
				cancel()
			}
		}
		faults.Calm()
		r.start(nil)
		r.pass(2 * time.Minute)
		for name, step := range map[string]int{"s": 5, "t": 7} {
			var want []string
			for at := r.m.Load().Schedules[name].Next(instantOf(t, "01-01 00:00")); !at.After(r.row(name).Watermark); at = r.m.Load().Schedules[name].Next(at) {
				want = append(want, at.Format("01-02 15:04"))
			}
			if time.Since(r.row(name).Watermark) > time.Duration(step+1)*time.Minute || len(want) < 20 {
				t.Errorf("%s has come to %s only", name, r.row(name).Watermark)
			}
			r.want(name, want...)
		}
	})
}
