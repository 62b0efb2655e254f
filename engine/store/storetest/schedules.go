package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

const daily = "0 3 * * * UTC"

// lead asks for schedules, each of spec daily, and answers those that holder has.
func (e *env) lead(holder string, names ...string) store.LeadResult {
	e.Helper()
	p := store.LeadParams{Holder: holder, Lease: lease}
	for _, n := range names {
		p.Schedules = append(p.Schedules, store.ScheduleSpec{Name: n, Spec: daily})
	}
	res, err := e.db.LeadSchedules(e.ctx, p)
	if err != nil {
		e.Fatalf("lead: %v", err)
	}
	return res
}

// leadOne is lead of one schedule that holder must get.
func (e *env) leadOne(holder, name string) store.Schedule {
	e.Helper()
	res := e.lead(holder, name)
	if len(res.Led) != 1 || res.Led[0].Name != name {
		e.Fatalf("%s leads %+v, want %s", holder, res.Led, name)
	}
	return res.Led[0]
}

// occurrence is a fire of schedule n, led by h, that was due at the given instant.
func (e *env) occurrence(sc store.Schedule, at time.Time) store.FireParams {
	run := e.params(store.EnqueueParams{})
	run.Key = store.OccurrenceKey(sc.Name, at) + "k"
	return store.FireParams{Name: sc.Name, Holder: sc.Holder, From: sc.Watermark, To: at, Occurrence: at, Runs: []store.EnqueueParams{run}}
}

func (e *env) fire(p store.FireParams) store.FireResult {
	e.Helper()
	res, err := e.db.FireSchedule(e.ctx, p)
	if err != nil {
		e.Fatalf("fire %s: %v", p.Name, err)
	}
	return res
}

// wantFired fires what must land, and answers the schedule as it is then.
func (e *env) wantFired(p store.FireParams) store.Schedule {
	e.Helper()
	res := e.fire(p)
	if !res.Moved || res.SkippedFor != "" || len(res.Runs) != len(p.Runs) {
		e.Fatalf("fire of %s answered %+v", p.Name, res)
	}
	return e.schedule(p.Name)
}

func (e *env) wantNotMoved(p store.FireParams) {
	e.Helper()
	before := e.schedules()
	if res := e.fire(p); res.Moved || res.SkippedFor != "" || len(res.Runs) > 0 {
		e.Fatalf("fire of %s answered %+v, want nothing", p.Name, res)
	}
	if d := cmp.Diff(before, e.schedules()); d != "" {
		e.Fatalf("a fire that did not move changed (-before +after):\n%s", d)
	}
	for _, r := range p.Runs {
		if _, err := e.db.Get(e.ctx, r.ID); err == nil {
			e.Fatalf("a fire that did not move inserted run %s", r.ID)
		}
	}
}

func (e *env) schedules() []store.Schedule {
	e.Helper()
	out, err := e.db.ListSchedules(e.ctx)
	if err != nil {
		e.Fatalf("list schedules: %v", err)
	}
	return out
}

func (e *env) schedule(name string) store.Schedule {
	e.Helper()
	for _, s := range e.schedules() {
		if s.Name == name {
			return s
		}
	}
	e.Fatalf("no schedule %s is listed", name)
	return store.Schedule{}
}

func (e *env) pauseSchedule(name string) store.Schedule {
	e.Helper()
	s, err := e.db.PauseSchedule(e.ctx, store.ScheduleParams{Name: name, By: "ann"})
	if err != nil {
		e.Fatalf("pause: %v", err)
	}
	return s
}

var scheduleTests = []test{
	{"a schedule begins at the store's now, led by who asked", func(e *env) {
		now := e.now()
		res := e.lead("h1", "b", "a")
		e.wantTime("now", res.Now, now)
		if len(res.Led) != 2 {
			e.Fatalf("leads %+v", res.Led)
		}
		want := []store.Schedule{
			{Name: "a", Spec: daily, Watermark: res.Now, Holder: "h1", LeasedUntil: res.Now.Add(lease)},
			{Name: "b", Spec: daily, Watermark: res.Now, Holder: "h1", LeasedUntil: res.Now.Add(lease)},
		}
		if d := cmp.Diff(want, res.Led); d != "" {
			e.Fatalf("led (-want +got):\n%s", d)
		}
		if d := cmp.Diff(want, e.schedules()); d != "" {
			e.Fatalf("listed (-want +got):\n%s", d)
		}
	}},
	{"leading nothing is nothing", func(e *env) {
		if res := e.lead("h"); len(res.Led) != 0 || len(e.schedules()) != 0 {
			e.Fatalf("answered %+v", res)
		}
	}},
	{"a lead without a holder or a lease is refused", func(e *env) {
		for _, p := range []store.LeadParams{{Lease: lease}, {Holder: "h"}, {Holder: "h", Lease: -lease}, {Holder: "h", Lease: time.Microsecond}} {
			_, err := e.db.LeadSchedules(e.ctx, p)
			e.wantRefused(err, job.CodeInvalid)
		}
	}},
	// A lease is one holder's until it lapses; the holder renews it.
	{"a lease keeps others out until it lapses", func(e *env) {
		first := e.leadOne("h1", "s")
		if res := e.lead("h2", "s"); len(res.Led) != 0 {
			e.Fatalf("h2 leads %+v", res.Led)
		}
		e.db.Advance(lease - 2*time.Second)
		e.leadOne("h1", "s")
		e.db.Advance(lease - 2*time.Second)
		if res := e.lead("h2", "s"); len(res.Led) != 0 {
			e.Fatalf("h2 leads %+v of a lease that was renewed", res.Led)
		}
		e.db.Advance(2 * time.Second)
		got := e.leadOne("h2", "s")
		if got.Holder != "h2" || !got.Watermark.Equal(first.Watermark) {
			e.Fatalf("taken over: %+v", got)
		}
		if res := e.lead("h1", "s"); len(res.Led) != 0 {
			e.Fatalf("h1 took its lease back: %+v", res.Led)
		}
	}},
	{"each schedule has a lease of its own", func(e *env) {
		e.lead("h1", "a", "shared")
		res := e.lead("h2", "b", "shared")
		if len(res.Led) != 1 || res.Led[0].Name != "b" {
			e.Fatalf("h2 leads %+v", res.Led)
		}
	}},
	{"one that is proved to be alone takes every lease", func(e *env) {
		e.leadOne("h1", "s")
		res, err := e.db.LeadSchedules(e.ctx, store.LeadParams{Holder: "h2", Lease: lease, Alone: true, Schedules: []store.ScheduleSpec{{Name: "s", Spec: daily}}})
		if err != nil || len(res.Led) != 1 || res.Led[0].Holder != "h2" {
			e.Fatalf("leads %+v, %v", res.Led, err)
		}
	}},
	{"a release ends the holder's leases and no other's", func(e *env) {
		e.lead("h1", "a", "b")
		e.lead("h2", "c")
		if err := errors.Join(e.db.ReleaseSchedules(e.ctx, "h1"), e.db.ReleaseSchedules(e.ctx, "nobody"), e.db.ReleaseSchedules(e.ctx, "")); err != nil {
			e.Fatal(err)
		}
		res := e.lead("h3", "a", "b", "c")
		if len(res.Led) != 2 || res.Led[0].Name != "a" || res.Led[1].Name != "b" {
			e.Fatalf("h3 leads %+v", res.Led)
		}
	}},
	// What a schedule never was is not made up for.
	{"a schedule whose spec changes begins again at now", func(e *env) {
		old := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		if same := e.leadOne("h", "s"); !same.Watermark.Equal(old.Watermark) {
			e.Fatalf("a renewal moved the watermark to %s", same.Watermark)
		}
		now := e.now()
		res, err := e.db.LeadSchedules(e.ctx, store.LeadParams{Holder: "h", Lease: lease, Schedules: []store.ScheduleSpec{{Name: "s", Spec: "0 4 * * * UTC"}}})
		if err != nil || len(res.Led) != 1 || res.Led[0].Spec != "0 4 * * * UTC" {
			e.Fatalf("leads %+v, %v", res.Led, err)
		}
		e.wantTime("watermark", res.Led[0].Watermark, now)
	}},
	{"a fire moves the watermark and inserts the runs", func(e *env) {
		sc := e.leadOne("h", "s")
		at := sc.Watermark.Add(time.Hour)
		e.db.Advance(2 * time.Hour)
		now := e.now()
		p := e.occurrence(sc, at)
		late := e.params(store.EnqueueParams{Job: "other", RunAt: at.Add(3 * time.Hour)})
		p.Runs, p.Missed, p.To = append(p.Runs, late), 4, at.Add(time.Minute)
		res := e.fire(p)
		want := store.FireResult{Moved: true, Runs: []store.EnqueueResult{{ID: p.Runs[0].ID, State: job.Ready}, {ID: late.ID, State: job.Delayed}}}
		if d := cmp.Diff(want, res); d != "" {
			e.Fatalf("answer (-want +got):\n%s", d)
		}
		got := e.schedule("s")
		e.wantTime("fired", got.FiredAt, now)
		wantSchedule := sc
		wantSchedule.Watermark, wantSchedule.FiredOccurrence, wantSchedule.FiredAt, wantSchedule.Fires, wantSchedule.Missed = p.To, at, got.FiredAt, 1, 4
		if d := cmp.Diff(wantSchedule, got); d != "" {
			e.Fatalf("schedule (-want +got):\n%s", d)
		}
		if r := e.wantState(p.Runs[0].ID, job.Ready); r.Key != store.OccurrenceKey("s", at)+"k" {
			e.Fatalf("key %q", r.Key)
		}
	}},
	// The fence: whoever believes to lead, an occurrence has its runs once.
	{"an occurrence that was fired does not fire again", func(e *env) {
		sc := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		at := sc.Watermark.Add(time.Minute)
		e.wantFired(e.occurrence(sc, at))
		e.wantNotMoved(e.occurrence(sc, at))                     // from the same watermark
		e.wantNotMoved(e.occurrence(sc, at.Add(10*time.Minute))) // another one, from a watermark that is past
		next := e.schedule("s")
		e.wantFired(e.occurrence(next, at.Add(10*time.Minute)))
		if got := e.schedule("s"); got.Fires != 2 || !got.FiredOccurrence.Equal(at.Add(10*time.Minute)) {
			e.Fatalf("schedule %+v", got)
		}
	}},
	{"a holder that lost its lease does not fire", func(e *env) {
		sc := e.leadOne("h1", "s")
		e.db.Advance(time.Hour)
		e.leadOne("h2", "s")
		p := e.occurrence(sc, sc.Watermark.Add(time.Minute))
		e.wantNotMoved(p)
		p.Holder = "h2"
		e.wantFired(p)
	}},
	{"nobody fires an unknown schedule, or for no holder", func(e *env) {
		sc := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		at := sc.Watermark.Add(time.Minute)
		p := e.occurrence(sc, at)
		p.Name = "t"
		e.wantNotMoved(p)
		if err := e.db.ReleaseSchedules(e.ctx, "h"); err != nil {
			e.Fatal(err)
		}
		e.wantNotMoved(e.occurrence(sc, at))
	}},
	// When an occurrence is due is the store's clock's to say.
	{"an occurrence does not fire before its time", func(e *env) {
		sc := e.leadOne("h", "s")
		at := sc.Watermark.Add(time.Minute)
		p := e.occurrence(sc, at)
		e.wantNotMoved(p)
		e.db.Advance(59 * time.Second)
		e.wantNotMoved(p)
		e.db.Advance(time.Second)
		e.wantFired(p)
	}},
	{"a fire that would not move forward is refused", func(e *env) {
		sc := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		at := sc.Watermark.Add(time.Minute)
		for _, change := range []func(*store.FireParams){
			func(p *store.FireParams) { p.Occurrence = sc.Watermark },
			func(p *store.FireParams) { p.Occurrence = sc.Watermark.Add(-time.Minute) },
			func(p *store.FireParams) { p.To = at.Add(-time.Second) },
			func(p *store.FireParams) { p.To = sc.Watermark },
			func(p *store.FireParams) { p.Holder = "" },
		} {
			p := e.occurrence(sc, at)
			change(&p)
			_, err := e.db.FireSchedule(e.ctx, p)
			e.wantRefused(err, job.CodeInvalid)
		}
		if got := e.schedule("s"); !got.Watermark.Equal(sc.Watermark) {
			e.Fatalf("a refused fire moved to %s", got.Watermark)
		}
	}},
	{"a run that cannot be stored leaves the watermark where it is", func(e *env) {
		sc := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		p := e.occurrence(sc, sc.Watermark.Add(time.Minute))
		bad := p.Runs[0]
		bad.ID = "nonsense"
		p.Runs = append(p.Runs, bad)
		_, err := e.db.FireSchedule(e.ctx, p)
		e.wantCode(err, job.CodeIDInvalid)
		if got := e.schedule("s"); !got.Watermark.Equal(sc.Watermark) || got.Fires != 0 {
			e.Fatalf("schedule %+v", got)
		}
		p.Runs = p.Runs[:1]
		e.wantFired(p)
	}},
	{"a run whose key is held stands for the entry", func(e *env) {
		sc := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		p := e.occurrence(sc, sc.Watermark.Add(time.Minute))
		holder := e.add(store.EnqueueParams{Key: p.Runs[0].Key})
		res := e.fire(p)
		if len(res.Runs) != 1 || !res.Runs[0].Deduped || res.Runs[0].ID != holder {
			e.Fatalf("answer %+v", res)
		}
	}},
	{"a live run of an earlier occurrence has the next one skipped", func(e *env) {
		sc := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		e.register("w")
		at := sc.Watermark
		next := func() store.FireParams {
			at = at.Add(time.Minute)
			p := e.occurrence(e.schedule("s"), at)
			p.SkipIfLive = true
			return p
		}
		first := next()
		live := first.Runs[0].ID
		e.wantFired(first)
		skipped := func(state job.State) {
			e.Helper()
			e.wantState(live, state)
			before, p := e.schedule("s"), next()
			if res := e.fire(p); !res.Moved || res.SkippedFor != live || len(res.Runs) != 0 {
				e.Fatalf("beside a %s run the fire answered %+v", state, res)
			}
			want := before
			want.Watermark, want.SkippedOccurrence, want.SkippedFor, want.Skips = p.To, p.Occurrence, live, before.Skips+1
			if d := cmp.Diff(want, e.schedule("s")); d != "" {
				e.Fatalf("schedule (-want +got):\n%s", d)
			}
		}
		skipped(job.Ready)
		r := e.claimOne("w")
		skipped(job.Running)
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended, Delay: time.Hour})
		skipped(job.Suspended)
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: live}); err != nil {
			e.Fatal(err)
		}
		second := next()
		e.wantFired(second)
		// An ended run that is run again is live again.
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: second.Runs[0].ID}); err != nil {
			e.Fatal(err)
		}
		if _, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: live}); err != nil {
			e.Fatal(err)
		}
		skipped(job.Ready)
	}},
	{"only runs of the schedule's own occurrences have one skipped", func(e *env) {
		sc := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		at := sc.Watermark.Add(time.Minute)
		for i, p := range []store.EnqueueParams{
			{}, {Key: "s:"}, {Key: "s:1"}, {Key: "s:1x:k"}, {Key: "s::k"}, {Key: "s:nightly:k"}, {Key: "s"}, {Key: "t:1000:k"}, {Key: "ss:1000:k"}, {Key: "s.t:1000:k"},
			{Key: "s:1000:k", Job: "other"}, {Key: "s:1000:k", Tenant: "other"}, {Key: "s:2026-01-01:k"},
		} {
			if res := e.enqueue(p)[0]; res.Deduped {
				e.Fatalf("entry %d is no run of its own", i)
			}
		}
		p := e.occurrence(sc, at)
		p.SkipIfLive = true
		sc = e.wantFired(p)
		p = e.occurrence(sc, at.Add(time.Minute))
		p.SkipIfLive = true
		if res := e.fire(p); res.SkippedFor == "" {
			e.Fatal("a live run of the schedule did not count")
		}
	}},
	{"without asking, live runs do not matter", func(e *env) {
		sc := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		for i := range 3 {
			sc = e.wantFired(e.occurrence(sc, sc.Watermark.Add(time.Duration(i+1)*time.Minute)))
		}
	}},
	{"a paused schedule neither fires nor moves, and is led all the same", func(e *env) {
		sc := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		now := e.now()
		paused := e.pauseSchedule("s")
		e.wantTime("paused", paused.PausedAt, now)
		if paused.PausedBy != "ann" || !paused.Watermark.Equal(sc.Watermark) {
			e.Fatalf("paused: %+v", paused)
		}
		p := e.occurrence(sc, sc.Watermark.Add(time.Minute))
		e.wantNotMoved(p)
		if led := e.leadOne("h", "s"); led.PausedAt.IsZero() || !led.Watermark.Equal(sc.Watermark) {
			e.Fatalf("led while paused: %+v", led)
		}
		e.db.Advance(time.Minute)
		again, err := e.db.PauseSchedule(e.ctx, store.ScheduleParams{Name: "s", By: "bob"})
		if err != nil || again.PausedBy != "ann" || !again.PausedAt.Equal(paused.PausedAt) {
			e.Fatalf("paused twice: %+v, %v", again, err)
		}
		resumed, err := e.db.ResumeSchedule(e.ctx, store.ScheduleParams{Name: "s", By: "cid"})
		if err != nil || !resumed.PausedAt.IsZero() || resumed.PausedBy != "" || !resumed.Watermark.Equal(sc.Watermark) {
			e.Fatalf("resumed: %+v, %v", resumed, err)
		}
		e.wantFired(p)
	}},
	{"a schedule may be paused before it is led", func(e *env) {
		e.pauseSchedule("s")
		e.db.Advance(time.Hour)
		now := e.now()
		led := e.leadOne("h", "s")
		if led.PausedAt.IsZero() || led.Spec != daily {
			e.Fatalf("led: %+v", led)
		}
		e.wantTime("watermark", led.Watermark, now)
	}},
	{"an unknown schedule cannot be resumed or forgotten", func(e *env) {
		_, err := e.db.ResumeSchedule(e.ctx, store.ScheduleParams{Name: "s", By: "cid"})
		e.wantRefused(err, job.CodeScheduleNotFound)
		e.wantRefused(e.db.ForgetSchedule(e.ctx, store.ScheduleParams{Name: "s", By: "dan"}), job.CodeScheduleNotFound)
	}},
	{"a schedule is forgotten once nobody leads it", func(e *env) {
		e.lead("h", "s", "t")
		e.wantRefused(e.db.ForgetSchedule(e.ctx, store.ScheduleParams{Name: "s", By: "dan"}), job.CodeScheduleLed)
		e.db.Advance(lease)
		if err := e.db.ForgetSchedule(e.ctx, store.ScheduleParams{Name: "s", By: "dan"}); err != nil {
			e.Fatal(err)
		}
		if left := e.schedules(); len(left) != 1 || left[0].Name != "t" {
			e.Fatalf("left %+v", left)
		}
	}},
	{"what an operator did to a schedule is in the audit, once", func(e *env) {
		e.pauseSchedule("s")
		e.pauseSchedule("s")
		for range 2 {
			if _, err := e.db.ResumeSchedule(e.ctx, store.ScheduleParams{Name: "s", By: "cid"}); err != nil {
				e.Fatal(err)
			}
		}
		e.pauseSchedule("t")
		if err := e.db.ForgetSchedule(e.ctx, store.ScheduleParams{Name: "s", By: "dan"}); err != nil {
			e.Fatal(err)
		}
		e.wantRefused(e.db.ForgetSchedule(e.ctx, store.ScheduleParams{Name: "s", By: "dan"}), job.CodeScheduleNotFound)
		entries, err := e.db.Audit(e.ctx, store.AuditParams{Kind: store.AuditSchedule, Subject: "s"})
		if err != nil {
			e.Fatal(err)
		}
		var got []string
		for _, a := range entries {
			got = append(got, a.By+" "+string(a.Verb))
		}
		if d := cmp.Diff([]string{"dan forget", "cid resume", "ann pause"}, got); d != "" {
			e.Fatalf("audit (-want +got):\n%s", d)
		}
	}},
	{"of many that fire one occurrence at a time one does", func(e *env) {
		sc := e.leadOne("h", "s")
		e.db.Advance(24 * time.Hour)
		const rounds, callers = 20, 6
		for n := range rounds {
			at := sc.Watermark.Add(time.Minute)
			var mu sync.Mutex
			var wg sync.WaitGroup
			moved := 0
			for c := range callers {
				p := e.occurrence(sc, at)
				p.Runs[0].ID, p.Runs[0].Key = uid(10_000+n*callers+c), p.Runs[0].Key+fmt.Sprint(c)
				wg.Go(func() {
					res, err := e.db.FireSchedule(e.ctx, p)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						e.Errorf("fire: %v", err)
					}
					if res.Moved {
						moved++
					}
				})
			}
			wg.Wait()
			if moved != 1 {
				e.Fatalf("round %d: %d fires landed", n, moved)
			}
			sc = e.schedule("s")
		}
		runs, err := e.db.List(e.ctx, store.ListParams{Limit: 1000})
		if err != nil || len(runs) != rounds || sc.Fires != rounds {
			e.Fatalf("%d runs of %d fires, %v; want %d", len(runs), sc.Fires, err, rounds)
		}
	}},
	{"of many that ask for a lease at a time one gets it", func(e *env) {
		for n := range 10 {
			name := fmt.Sprintf("s%d", n)
			var mu sync.Mutex
			var wg sync.WaitGroup
			led := 0
			for c := range 6 {
				wg.Go(func() {
					res, err := e.db.LeadSchedules(e.ctx, store.LeadParams{Holder: fmt.Sprint(c), Lease: lease, Schedules: []store.ScheduleSpec{{Name: name, Spec: daily}}})
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						e.Errorf("lead: %v", err)
					}
					led += len(res.Led)
				})
			}
			wg.Wait()
			if led != 1 {
				e.Fatalf("%d lead %s", led, name)
			}
		}
	}},
	// Wakes are the enqueue path's.
	{"a fire wakes the queue of its runs", func(e *env) {
		next, stop := e.wakes()
		defer stop()
		sc := e.leadOne("h", "s")
		e.db.Advance(time.Hour)
		next(queueA, func() { e.wantFired(e.occurrence(sc, sc.Watermark.Add(time.Minute))) })
	}},
}
