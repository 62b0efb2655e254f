package storetest

import (
	"slices"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func (x *random) aSchedule() string { return pick(x, "s", "s1", "t") }

func (x *random) leadSome() {
	p := store.LeadParams{Holder: pick(x, "h1", "h2"), Lease: lease, Alone: x.odds(8)}
	for _, name := range []string{"s", "s1", "t"} {
		if !x.odds(3) {
			p.Schedules = append(p.Schedules, store.ScheduleSpec{Name: name, Spec: pick(x, "x", "x", "x", "x", "x", "y")})
		}
	}
	got, err := x.db.LeadSchedules(x.ctx, p)
	if err != nil {
		x.Fatal(err)
	}
	x.same(x.m.lead(p), got)
}

func (x *random) releaseSome() {
	holder := pick(x, "h1", "h2", "nobody")
	if err := x.db.ReleaseSchedules(x.ctx, holder); err != nil {
		x.Fatal(err)
	}
	x.m.releaseSchedules(holder)
}

// fireSome fires what mostly may be fired.
func (x *random) fireSome() {
	name := x.aSchedule()
	from, holder := x.m.now, "h1"
	if row := x.m.schedules[name]; row != nil {
		from, holder = row.Watermark, row.Holder
	}
	if x.odds(10) {
		from = from.Add(-time.Second)
	}
	if holder == "" || x.odds(10) {
		holder = pick(x, "h1", "h2")
	}
	at := from.Add(pick(x, time.Millisecond, time.Millisecond, time.Second, time.Minute))
	p := store.FireParams{
		Name: name, Holder: holder, From: from, Occurrence: at, To: at.Add(pick(x, 0, 0, time.Millisecond)),
		Missed: pick(x, 0, 0, 3), SkipIfLive: x.odds(2),
	}
	for range 1 + x.rand.IntN(2) {
		run := x.newRun()
		run.Key = store.OccurrenceKey(name, at) + pick(x, "k1", "k2")
		p.Runs = append(p.Runs, run)
	}
	standing := x.m.standing(p)
	got, err := x.db.FireSchedule(x.ctx, p)
	if err != nil {
		x.Fatal(err)
	}
	if got.SkippedFor != "" && !slices.Contains(standing, got.SkippedFor) {
		x.Fatalf("skipped for run %s, which does not stand in the way", got.SkippedFor)
	}
	want := x.m.fire(p, got.SkippedFor)
	x.seenResults(want.Runs)
	x.seenResults(got.Runs)
	x.same(want, got)
}

func (x *random) pauseOne() {
	name := x.aSchedule()
	if x.odds(2) {
		got, err := x.db.PauseSchedule(x.ctx, store.ScheduleParams{Name: name, By: "ann"})
		if err != nil {
			x.Fatal(err)
		}
		x.same(x.m.pauseSchedule(name, "ann"), got)
		return
	}
	got, err := x.db.ResumeSchedule(x.ctx, store.ScheduleParams{Name: name, By: "ann"})
	row := x.m.schedules[name]
	if row == nil {
		x.same(job.CodeScheduleNotFound, abi.CodeOf(err))
		return
	}
	if err != nil {
		x.Fatal(err)
	}
	row.PausedAt, row.PausedBy = time.Time{}, ""
	x.same(*row, got)
}

func (x *random) forgetOne() {
	name := x.aSchedule()
	want := ""
	switch row := x.m.schedules[name]; {
	case row == nil:
		want = job.CodeScheduleNotFound
	case row.LeasedUntil.After(x.m.now):
		want = job.CodeScheduleLed
	default:
		delete(x.m.schedules, name)
	}
	x.same(want, abi.CodeOf(x.db.ForgetSchedule(x.ctx, store.ScheduleParams{Name: name})))
}
