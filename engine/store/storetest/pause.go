package storetest

import (
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

func (e *env) pause(kind store.PauseKind, name string) {
	e.Helper()
	e.setPause(store.PauseParams{Kind: kind, Name: name, By: "ann", Reason: "a reason"}, true)
}

func (e *env) resume(kind store.PauseKind, name string) {
	e.Helper()
	e.setPause(store.PauseParams{Kind: kind, Name: name, Resume: true, By: "bob"}, true)
}

func (e *env) setPause(p store.PauseParams, want bool) {
	e.Helper()
	changed, err := e.db.SetPause(e.ctx, p)
	if err != nil {
		e.Fatalf("pause %+v: %v", p, err)
	}
	if changed != want {
		e.Fatalf("pause %+v changed something: %v, want %v", p, changed, want)
	}
}

var pauseTests = []test{
	// (C2, O10)
	{"what is paused is not claimed, and is once it is resumed", func(e *env) {
		e.register("w")
		a := e.add(store.EnqueueParams{Job: "a", Tenant: "t"})
		b := e.add(store.EnqueueParams{Job: "b", Tenant: "t"})
		c := e.add(store.EnqueueParams{Job: "a", Tenant: "u"})
		for _, p := range []struct {
			kind store.PauseKind
			name string
			left []string
		}{
			{store.PauseQueue, queueA, nil},
			{store.PauseJob, "a", []string{b}},
			{store.PauseTenant, "t", []string{c}},
		} {
			e.pause(p.kind, p.name)
			runs := e.claimUnder("w", 10, nil)
			e.wantClaim("while "+string(p.kind)+" is paused", runs, p.left...)
			for _, r := range runs {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Shed, To: job.Ready})
			}
			if n := e.ready(queueA); n != 3 {
				e.Fatalf("%d are counted as ready, want 3", n)
			}
			e.resume(p.kind, p.name)
			runs = e.claimUnder("w", 10, nil)
			e.wantClaim("after", runs, a, b, c)
			for _, r := range runs {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Shed, To: job.Ready})
			}
		}
	}},
	{"runs of a paused job hide nothing", func(e *env) {
		e.register("w")
		for range 500 {
			e.add(store.EnqueueParams{})
		}
		other := e.add(store.EnqueueParams{Job: "other"})
		e.pause(store.PauseJob, jobA)
		e.wantClaim("the other", e.claimUnder("w", 3, nil), other)
		e.resume(store.PauseJob, jobA)
		if n := len(e.claimUnder("w", 1000, nil)); n != 500 {
			e.Fatalf("claimed %d after the pause, want 500", n)
		}
	}},
	{"a pause holds what is enqueued, promoted and limited meanwhile", func(e *env) {
		e.register("w")
		e.pause(store.PauseJob, jobA)
		gated := e.addGated(2)
		late := e.add(store.EnqueueParams{Delay: time.Second})
		e.wantClaim("none", e.claimUnder("w", 10, capped(1)))
		e.db.Advance(2 * time.Second)
		e.wantClaim("none later", e.claimUnder("w", 10, capped(1)))
		e.resume(store.PauseJob, jobA)
		e.wantClaim("one", e.claimUnder("w", 10, capped(1)), gated[0])
		e.finish(e.runOf(gated[0]), job.Completed, job.Done)
		e.wantClaim("another", e.claimUnder("w", 10, capped(1)), gated[1])
		_ = late
	}},
	{"what is running goes on", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.pause(store.PauseQueue, queueA)
		e.pause(store.PauseJob, jobA)
		e.finish(r, job.Completed, job.Done)
	}},
	{"a pause keeps who, when and why", func(e *env) {
		if ps, err := e.db.ListPauses(e.ctx); err != nil || len(ps) != 0 {
			e.Fatalf("at first: %v, %v", ps, err)
		}
		now := e.now()
		e.pause(store.PauseQueue, "q")
		e.db.Advance(time.Second)
		e.setPause(store.PauseParams{Kind: store.PauseQueue, Name: "q", By: "eve"}, false)
		e.setPause(store.PauseParams{Kind: store.PauseJob, Name: "never", Resume: true}, false)
		e.pause(store.PauseTenant, "t")
		ps, err := e.db.ListPauses(e.ctx)
		if err != nil || len(ps) != 2 {
			e.Fatalf("listed %v, %v", ps, err)
		}
		if p := ps[0]; p.Kind != store.PauseQueue || p.Name != "q" || p.By != "ann" || p.Reason != "a reason" {
			e.Fatalf("the first pause is %+v", p)
		}
		e.wantTime("paused", ps[0].PausedAt, now)
		e.resume(store.PauseQueue, "q")
		ps, err = e.db.ListPauses(e.ctx)
		if err != nil || len(ps) != 2 || !ps[0].PausedAt.IsZero() || ps[0].By != "bob" {
			e.Fatalf("after it was resumed: %+v, %v", ps, err)
		}
		entries, err := e.db.Audit(e.ctx, store.AuditParams{Kind: "queue", Subject: "q"})
		if err != nil || len(entries) != 2 || entries[0].Verb != store.AuditResume || entries[0].By != "bob" ||
			entries[1].Verb != store.AuditPause || entries[1].By != "ann" || entries[1].Detail != "a reason" {
			e.Fatalf("audited %+v, %v", entries, err)
		}
	}},
	{"a pause of nothing is refused", func(e *env) {
		_, err := e.db.SetPause(e.ctx, store.PauseParams{Kind: "worker", Name: "x"})
		e.wantRefused(err, job.CodeInvalid)
		_, err = e.db.SetPause(e.ctx, store.PauseParams{Kind: store.PauseJob})
		e.wantRefused(err, job.CodeInvalid)
	}},
	{"a run that waited long goes before every priority", func(e *env) {
		e.register("w")
		hold := e.addGated(1)
		e.wantClaim("the holder", e.claimUnder("w", 1, capped(1)), hold[0])
		old := e.add(store.EnqueueParams{Priority: 50})
		older := e.add(store.EnqueueParams{Priority: 100, Tenant: "t"})
		behind := e.add(store.EnqueueParams{Priority: 70, Gate: limit.JobGate(jobA)})
		first := e.add(store.EnqueueParams{Job: "free", Priority: job.MinPriority, Tenant: "u"})
		e.db.Advance(10 * time.Second)
		young := e.add(store.EnqueueParams{Job: "free", Priority: -50})
		for _, want := range []int{4, 0} {
			n, err := e.db.Age(e.ctx, store.AgeParams{Queue: queueA, Waited: 8 * time.Second})
			if err != nil || n != want {
				e.Fatalf("aged %d, %v, want %d", n, err, want)
			}
		}
		for _, id := range []string{old, older, behind, first} {
			if r := e.get(id); !r.Aged {
				e.Fatalf("run %s has not aged: %+v", id, r)
			}
		}
		if r := e.get(young); r.Priority != -50 || r.Aged {
			e.Fatalf("a young run was aged: %+v", r)
		}
		if n, err := e.db.Age(e.ctx, store.AgeParams{Queue: "elsewhere", Waited: time.Nanosecond}); err != nil || n != 0 {
			e.Fatalf("aged %d elsewhere, %v", n, err)
		}
		_, err := e.db.Age(e.ctx, store.AgeParams{Queue: queueA})
		e.wantRefused(err, job.CodeInvalid)
	}},
	{"an aged run has its own priority, and keeps it whatever becomes of it", func(e *env) {
		e.register("w")
		want := func(what string, r job.Run, priority int, aged bool) {
			e.Helper()
			if r.Priority != priority || r.Aged != aged {
				e.Fatalf("%s: the run has priority %d and aged %t, want %d and %t", what, r.Priority, r.Aged, priority, aged)
			}
		}
		age := func(n int) {
			e.Helper()
			e.db.Advance(10 * time.Second)
			if got, err := e.db.Age(e.ctx, store.AgeParams{Queue: queueA, Waited: 8 * time.Second}); err != nil || got != n {
				e.Fatalf("aged %d, %v, want %d", got, err, n)
			}
		}
		id := e.add(store.EnqueueParams{Priority: 42})
		gone := e.add(store.EnqueueParams{Priority: 60})
		age(2)
		want("ready for long", e.get(id), 42, true)
		listed, err := e.db.List(e.ctx, store.ListParams{Oldest: true, Limit: 1})
		if err != nil || len(listed) != 1 {
			e.Fatalf("listed %v, %v", listed, err)
		}
		want("listed", listed[0], 42, true)
		promoted, err := e.db.Promote(e.ctx, store.PromoteParams{ID: id})
		if err != nil {
			e.Fatal(err)
		}
		want("promoted", promoted, 42, true)
		cancelled, err := e.db.Cancel(e.ctx, store.CancelParams{ID: gone})
		if err != nil {
			e.Fatal(err)
		}
		want("cancelled", cancelled, 60, false)
		want("cancelled, as it is kept", e.get(gone), 60, false)

		r := e.claimOne("w")
		want("claimed", r, 42, false)
		want("running", e.get(id), 42, false)
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Delayed, Delay: time.Second})
		want("to be tried again", e.get(id), 42, false)
		e.db.Advance(time.Second)
		urgent := e.add(store.EnqueueParams{Priority: 41})
		if r := e.claimOne("w"); r.ID != urgent {
			e.Fatalf("claimed %s, which has priority %d, before %s", r.ID, r.Priority, urgent)
		}
		r = e.claimOne("w")
		want("claimed again", r, 42, false)
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Interrupted, To: job.Ready})
		age(1)
		want("ready for long again", e.get(id), 42, true)
		r = e.claimOne("w")
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.DeadLettered, To: job.Dead})
		want("dead", e.get(id), 42, false)
		again, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: id})
		if err != nil {
			e.Fatal(err)
		}
		want("requeued", again, 42, false)
	}},
	{"a run that aged behind its gate has its own priority when it has passed it", func(e *env) {
		e.register("w")
		hold := e.addGated(1)
		e.wantClaim("the holder", e.claimUnder("w", 1, capped(1)), hold[0])
		id := e.add(store.EnqueueParams{Priority: 7, Gate: limit.JobGate(jobA)})
		e.wantClaim("behind the gate", e.claimUnder("w", 1, capped(1)))
		if r := e.get(id); r.Blocked == "" {
			e.Fatalf("the run is not behind its gate: %+v", r)
		}
		e.db.Advance(10 * time.Second)
		if n, err := e.db.Age(e.ctx, store.AgeParams{Queue: queueA, Waited: 8 * time.Second}); err != nil || n != 1 {
			e.Fatalf("aged %d, %v", n, err)
		}
		if r := e.get(id); !r.Aged || r.Priority != 7 {
			e.Fatalf("aged behind its gate it is %+v", r)
		}
		e.cancel(store.CancelParams{ID: hold[0]})
		got := e.claimUnder("w", 1, capped(1))
		if len(got) != 1 || got[0].ID != id || got[0].Priority != 7 || got[0].Aged {
			e.Fatalf("claimed %+v", got)
		}
		if r := e.get(id); r.Aged || r.Priority != 7 {
			e.Fatalf("running it is %+v", r)
		}
	}},
	{"an aged run that is cancelled to be undone has its own priority", func(e *env) {
		e.register("w")
		id := e.add(store.EnqueueParams{Priority: 9})
		r := e.claimOne("w")
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "paid", Kind: job.KindUndoable, Status: job.StepCompleted})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Interrupted, To: job.Ready})
		e.db.Advance(10 * time.Second)
		if n, err := e.db.Age(e.ctx, store.AgeParams{Queue: queueA, Waited: 8 * time.Second}); err != nil || n != 1 {
			e.Fatalf("aged %d, %v", n, err)
		}
		if r, err := e.db.Cancel(e.ctx, store.CancelParams{ID: id}); err != nil || r.State != job.Ready || r.Priority != 9 || r.Aged {
			e.Fatalf("cancelled to be undone it is %+v, %v", r, err)
		}
	}},
	{"aged runs go in the order in which they became due", func(e *env) {
		e.register("w")
		var want []string
		for i := range 5 {
			want = append(want, e.add(store.EnqueueParams{Priority: 10 * i}))
			e.db.Advance(time.Second)
		}
		e.db.Advance(10 * time.Second)
		if n, err := e.db.Age(e.ctx, store.AgeParams{Queue: queueA, Waited: 5 * time.Second, Limit: 3}); err != nil || n != 3 {
			e.Fatalf("aged %d, %v, want the 3 that it may", n, err)
		}
		if n, err := e.db.Age(e.ctx, store.AgeParams{Queue: queueA, Waited: 5 * time.Second}); err != nil || n != 2 {
			e.Fatalf("aged %d, %v, want the others", n, err)
		}
		e.add(store.EnqueueParams{Priority: job.MinPriority})
		for _, id := range want {
			if r := e.claimOne("w"); r.ID != id {
				e.Fatalf("claimed %s, want %s", r.ID, id)
			}
		}
	}},
}
