package schedule_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/schedule"
	"github.com/jobrunner/runner/engine/store"
)

func TestAnOccurrenceBecomesRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("nightly", "0 3 * * *", func(s *manifest.Schedule) {
			s.Zone, _ = time.LoadLocation("America/Bogota")
			s.Enqueue = append(s.Enqueue, manifest.ScheduledRun{Job: "other", Input: []byte(`{}`)})
		}))
		r.m.Load().Jobs["work"].Key = enginetest.Key("at {at}")
		r.start(nil)
		r.until("01-01 07:59")
		r.want("nightly")
		r.until("01-01 08:00")
		runs := r.runs()
		if len(runs) != 2 || runs[0].Job != "work" || runs[1].Job != "other" {
			t.Fatalf("runs %+v", runs)
		}
		run, err := r.db.Get(t.Context(), runs[0].ID)
		r.must(err)
		at := instantOf(t, "01-01 08:00")
		if want := fmt.Sprintf("nightly:%d:at 2000-01-01T03:00:00-05:00", at.UnixMilli()); run.Key != want {
			t.Errorf("key %q, want %q", run.Key, want)
		}
		if string(run.Input) != `{"at":"2000-01-01T03:00:00-05:00"}` || run.EnqueuedBy != "schedule nightly" || run.State != job.Ready {
			t.Errorf("run %+v, input %s", run, run.Input)
		}
		if late := run.CreatedAt.Sub(at); late < 0 || late > 10*time.Millisecond {
			t.Errorf("it came %v late", late)
		}
		r.until("01-03 12:00")
		if n := len(r.runs()); n != 6 {
			t.Errorf("%d runs after three days", n)
		}
	})
}

// What the scheduler was not there for is not made up for when it sees a schedule
// for the first time.
func TestAScheduleBeginsWhenItIsFirstSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", catchUp("run-all")))
		r.until("01-05 10:30")
		r.start(nil)
		r.until("01-05 11:30")
		r.want("s", "01-05 11:00")
	})
}

// The scheduler of an hourly schedule is away for a day.
func TestCatchUp(t *testing.T) {
	hours := func(from, to int) (out []string) {
		for h := from; h <= to; h++ {
			out = append(out, time.Date(2000, 1, 1, h, 0, 0, 0, time.UTC).Format("01-02 15:04"))
		}
		return out
	}
	for _, c := range []struct {
		policy      string
		soon, later []string // at once, and after the next hour
		missed      int64
		lagsTill    string // where the watermark is at once
	}{
		{"skip", hours(24, 24), hours(24, 25), 23, "01-02 00:00"},
		{"run-once", hours(1, 1), append(hours(1, 1), hours(25, 25)...), 23, "01-02 00:30"},
		{"run-all", hours(1, 10), hours(1, 25), 0, "01-01 10:00"},
	} {
		t.Run(c.policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, every("s", "0 * * * *", catchUp(c.policy)))
				first := r.start(nil)
				r.stop(first)
				r.until("01-02 00:30")
				r.start(nil)
				r.want("s", c.soon...)
				row := r.row("s")
				if row.Missed != c.missed || !row.Watermark.Truncate(time.Minute).Equal(instantOf(t, c.lagsTill)) {
					t.Errorf("missed %d, watermark %s", row.Missed, row.Watermark)
				}
				r.until("01-02 01:30")
				r.want("s", c.later...)
			})
		})
	}
}

// More than one round may make up for is not made up for at one go.
func TestRunAllGoesOnWithTheRestASecondLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", func(s *manifest.Schedule) { s.CatchUp, s.MaxCatchUp = "run-all", 4 }))
		r.stop(r.start(nil))
		r.until("01-01 10:30")
		r.start(nil)
		for _, want := range []int{4, 8, 10, 10} {
			if got := len(r.occurrences("s")); got != want {
				t.Errorf("%d have fired, want %d", got, want)
			}
			r.pass(time.Second)
		}
	})
}

func TestAMinutelyScheduleThatWasAwayForAYearCatchesUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "* * * * *", nil))
		r.stop(r.start(nil))
		r.pass(366*24*time.Hour + 30*time.Second)
		r.start(nil)
		if row := r.row("s"); row.Fires != 1 || row.Missed != 1001 || time.Since(row.Watermark) > time.Minute {
			t.Errorf("row %+v", row)
		}
	})
}

// A fixed time comes once on each day, a wildcard as often as time passes.
func TestClockChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		berlin := func(s *manifest.Schedule) { s.Zone, _ = time.LoadLocation("Europe/Berlin") }
		r := newRig(t, every("fixed", "30 2 * * *", berlin), every("wild", "30 * * * *", berlin))
		r.start(func(c *schedule.Config) { c.Lease = time.Hour })
		r.until("03-25 12:00")
		fixed, wild := len(r.occurrences("fixed")), len(r.occurrences("wild"))
		r.until("03-27 12:00") // two days, the first of 23 hours
		got := r.occurrences("fixed")
		if want := []string{"03-26 01:00", "03-27 00:30"}; !slices.Equal(got[fixed:], want) {
			t.Errorf("in spring %q, want %q", got[fixed:], want)
		}
		if n := len(r.occurrences("wild")) - wild; n != 48 {
			t.Errorf("in spring the wildcard came %d times in 48 hours", n)
		}
	})
}

func TestClockChangesInAutumn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		berlin := func(s *manifest.Schedule) { s.Zone, _ = time.LoadLocation("Europe/Berlin") }
		r := newRig(t, every("fixed", "30 2 * * *", berlin), every("wild", "30 * * * *", berlin))
		r.until("10-28 12:00")
		r.start(func(c *schedule.Config) { c.Lease = time.Hour })
		r.until("10-30 12:00")
		r.want("fixed", "10-29 00:30", "10-30 01:30")
		if n := len(r.occurrences("wild")); n != 48 {
			t.Errorf("the wildcard came %d times in 48 hours", n)
		}
	})
}

func TestJitterDelaysTheRunsOfAnOccurrence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := every("s", "0 * * * *", func(s *manifest.Schedule) {
			s.Jitter = 10 * time.Minute
			s.Enqueue = append(s.Enqueue, manifest.ScheduledRun{Job: "other", Input: []byte(`{}`)})
		})
		r := newRig(t, s)
		r.start(nil)
		r.until("01-01 02:00")
		for _, run := range r.runs()[2:] {
			if want := s.Due(instantOf(t, "01-01 02:00")); !run.RunAt.Equal(want) || run.State != job.Delayed {
				t.Errorf("%s is %s and due at %s, want %s", run.Job, run.State, run.RunAt, want)
			}
		}
	})
}

// An occurrence that is made up for later than its jitter is due at once.
func TestJitterDoesNotMoveWhatIsLateAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", func(s *manifest.Schedule) { s.Jitter = 10 * time.Minute }))
		r.stop(r.start(nil))
		r.until("01-01 01:30")
		r.start(nil)
		if runs := r.runs(); len(runs) != 1 || runs[0].State != job.Ready || !runs[0].RunAt.Equal(runs[0].CreatedAt) {
			t.Errorf("runs %+v", runs)
		}
	})
}

func TestOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("skip", "0 * * * *", func(s *manifest.Schedule) { s.Overlap = "skip" }), every("allow", "0 * * * *", nil))
		r.start(nil)
		r.until("01-01 03:30")
		r.want("skip", "01-01 01:00")
		r.want("allow", "01-01 01:00", "01-01 02:00", "01-01 03:00")
		if row := r.row("skip"); row.Skips != 2 || row.SkippedFor != r.runs()[1].ID && row.SkippedFor != r.runs()[0].ID || row.Fires != 1 {
			t.Errorf("row %+v", row)
		}
		if n := r.events.Count("schedule.skipped"); n != 2 {
			t.Errorf("%d skips were told of", n)
		}
		r.finish()
		r.until("01-01 04:30")
		r.want("skip", "01-01 01:00", "01-01 04:00")
	})
}

func TestAPausedScheduleNeitherFiresNorMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", catchUp("run-all")), every("other", "0 * * * *", nil))
		first := r.start(nil)
		r.until("01-01 01:30")
		_, err := r.db.PauseSchedule(t.Context(), pause("s"))
		r.must(err)
		r.until("01-01 03:30")
		r.want("s", "01-01 01:00")
		r.want("other", "01-01 01:00", "01-01 02:00", "01-01 03:00")
		if row := r.row("s"); !row.Watermark.Equal(instantOf(t, "01-01 01:00")) {
			t.Errorf("its watermark is %s", row.Watermark)
		}
		// It stays paused over a restart and another manifest.
		r.stop(first)
		r.m.Store(declaring(every("s", "0 * * * *", catchUp("run-all"))))
		r.start(nil)
		r.until("01-01 05:30")
		r.want("s", "01-01 01:00")
		_, err = r.db.ResumeSchedule(t.Context(), pause("s"))
		r.must(err)
		r.pass(schedule.DefaultLease/3 + 2*time.Second)
		r.want("s", "01-01 01:00", "01-01 02:00", "01-01 03:00", "01-01 04:00", "01-01 05:00")
	})
}

// (O11) What a pause held up is made up for as the schedule says.
func TestAResumedScheduleMakesUpAsItsPolicySays(t *testing.T) {
	for policy, want := range map[string][]string{
		"skip":     {"01-01 01:00", "01-01 04:00"},
		"run-once": {"01-01 01:00", "01-01 02:00"},
		"run-all":  {"01-01 01:00", "01-01 02:00", "01-01 03:00", "01-01 04:00"},
	} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, every("s", "0 * * * *", catchUp(policy)))
				r.start(nil)
				r.until("01-01 01:30")
				_, err := r.db.PauseSchedule(t.Context(), pause("s"))
				r.must(err)
				r.until("01-01 04:30")
				r.want("s", "01-01 01:00")
				_, err = r.db.ResumeSchedule(t.Context(), pause("s"))
				r.must(err)
				r.pass(schedule.DefaultLease/3 + 2*time.Second)
				r.want("s", want...)
			})
		})
	}
}

// (TR2)
func TestAFireIsTheTraceOfItsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", nil))
		tracer := &enginetest.Tracer{}
		r.start(func(c *schedule.Config) { c.Tracer = tracer })
		r.until("01-01 02:30")
		fires := tracer.Named("schedule s")
		runs, err := r.db.List(t.Context(), store.ListParams{})
		r.must(err)
		if len(fires) != 2 || len(runs) != 2 || len(tracer.Open()) != 0 || fires[0].Ending.Failed {
			t.Fatalf("fires %+v, runs %+v", fires, runs)
		}
		for i, run := range runs { // newest first
			if run.Traceparent != fires[1-i].ID {
				t.Errorf("a run is under %s, and its fire is %s", run.Traceparent, fires[1-i].ID)
			}
		}
	})
}

// A pause that comes between two renewals holds all the same.
func TestAPauseIsHeededAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", nil))
		r.start(nil)
		r.pass(time.Hour - 10*time.Millisecond)
		_, err := r.db.PauseSchedule(t.Context(), pause("s"))
		r.must(err)
		r.pass(10 * time.Minute)
		r.want("s")
		if n := r.db.Count("FireSchedule"); n > 1 {
			t.Errorf("it was tried %d times", n)
		}
	})
}

// Between renewals nothing is asked of the database, however many schedules
// there are.
func TestIdleCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*manifest.Schedule
		for i := range 35 {
			all = append(all, every(fmt.Sprintf("s%d", i), "0 3 * * *", nil))
		}
		r := newRig(t, all...)
		r.start(nil)
		before := r.counts()
		r.pass(10 * time.Minute)
		after := r.counts()
		renewals := after["LeadSchedules"] - before["LeadSchedules"]
		before["LeadSchedules"] = after["LeadSchedules"]
		if renewals < 50 || renewals > 67 || !same(before, after) {
			t.Errorf("in ten minutes: %d renewals, and %v became %v", renewals, before, after)
		}
	})
}

func TestWithoutSchedulesNothingIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.start(nil)
		r.pass(3 * time.Hour)
		r.stop(s)
		for op, n := range r.counts() {
			if n > 0 {
				t.Errorf("%s was asked for %d times", op, n)
			}
		}
	})
}

func TestAReloadIsServedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("old", "0 * * * *", nil))
		s := r.start(nil)
		r.until("01-01 01:30")
		r.m.Store(declaring(every("new", "31 * * * *", nil)))
		s.Kick()
		r.until("01-01 03:00")
		r.want("old", "01-01 01:00")
		r.want("new", "01-01 01:31", "01-01 02:31")
	})
}

// A time that a schedule did not have before is not one that it missed.
func TestARedefinedScheduleMakesUpForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 3 * * *", catchUp("run-all")))
		s := r.start(nil)
		r.until("01-01 12:30")
		r.m.Store(declaring(every("s", "0 9,15 * * *", catchUp("run-all"))))
		s.Kick()
		r.until("01-01 18:00")
		r.want("s", "01-01 03:00", "01-01 15:00")
	})
}

func TestOneFailureStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("a", "0 * * * *", nil), every("b", "0 * * * *", nil), every("c", "0 * * * *", nil))
		r.m.Load().Schedules["b"].Enqueue[0].Job = "nothing"
		r.start(nil)
		r.until("01-01 02:30")
		r.want("a", "01-01 01:00", "01-01 02:00")
		r.want("b")
		r.want("c", "01-01 01:00", "01-01 02:00")
		if code, fix := r.events.Attr("schedule.fire-failed", "code"), r.events.Attr("schedule.fire-failed", "fix"); code != job.CodeUnknownJob || fix == "" {
			t.Errorf("logged code %q, fix %q", code, fix)
		}
		if n := r.events.Count("schedule.fire-failed"); n > 12 {
			t.Errorf("%d lines for one failure", n)
		}
		// It is tried again, and mended by another manifest.
		r.m.Store(declaring(every("b", "0 * * * *", nil)))
		r.pass(2 * time.Minute)
		r.want("b", "01-01 02:00")
	})
}

// A round that is asked for while one is under way is that one.
func TestRoundsAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, every("s", "0 * * * *", nil))
		release := make(chan struct{})
		r.db.Between = func(_ context.Context, op string, call func() error) error {
			if op == "LeadSchedules" {
				<-release
			}
			return call()
		}
		s := r.idle(nil)
		results := make(chan schedule.Result, 5)
		for range 5 {
			go func() {
				res, err := s.Round(t.Context())
				if err != nil {
					t.Error(err)
				}
				results <- res
			}()
		}
		synctest.Wait()
		if n := r.db.Count("LeadSchedules"); n != 1 {
			t.Fatalf("%d rounds are under way", n)
		}
		close(release)
		for range 5 {
			if res := <-results; res.Led != 1 {
				t.Errorf("a round answered %+v", res)
			}
		}
		if n := r.db.Count("LeadSchedules"); n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}
