package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// fresh is a run that worker would begin at once.
func fresh(worker string) store.EnqueueParams {
	return store.EnqueueParams{Worker: worker, Minted: true, Input: []byte(`{"n":1}`)}
}

// waits enqueues p and fails if it was handed over.
func (e *env) waits(why string, p store.EnqueueParams) {
	e.Helper()
	if res := e.enqueue(p)[0]; res.Run != nil || res.State == job.Running {
		e.Errorf("%s: the run was handed over: %+v", why, res)
	}
}

// What is handed over, if a store does so at all, is what a claim would find.
var handoverTests = []test{
	{"a run is handed over to nobody whose lease has ended", func(e *env) {
		e.waits("an unknown worker", fresh("nobody"))
		e.register("w")
		e.db.Advance(lease + time.Second)
		other := fresh("w")
		other.Queue = "other"
		e.waits("a lapsed worker", other)
		e.register("v")
		if err := e.db.Deregister(e.ctx, "v"); err != nil {
			e.Fatal(err)
		}
		other = fresh("v")
		other.Queue = "another"
		e.waits("a worker that has gone", other)
	}},
	{"a run is not handed over past one that is due", func(e *env) {
		e.register("w")
		first := e.add(store.EnqueueParams{Priority: 9})
		e.waits("a run waits", fresh("w"))
		if r := e.claimOne("w"); r.ID == first {
			e.Error("the run of the lower priority was claimed first")
		}
		e.add(store.EnqueueParams{Queue: "timed", Delay: 10 * time.Second})
		e.db.Advance(11 * time.Second)
		late := fresh("w")
		late.Queue = "timed"
		e.waits("a delayed run has come due", late)
	}},
	{"a run is not handed over in a queue that is paused", func(e *env) {
		e.register("w")
		e.pause(store.PauseQueue, queueA)
		e.waits("paused", fresh("w"))
	}},
	{"a run that waits for its time is not handed over", func(e *env) {
		e.register("w")
		p := fresh("w")
		p.Delay = 10 * time.Second
		e.waits("delayed", p)
		p = fresh("w")
		p.RunAt = e.now().Add(time.Minute)
		e.waits("for a time", p)
	}},
	{"what a live run stands for is not handed over", func(e *env) {
		e.register("w")
		p := fresh("w")
		p.Key = "k"
		held := e.enqueue(p)[0]
		p = fresh("w")
		p.Key = "k"
		if res := e.enqueue(p)[0]; !res.Deduped || res.ID != held.ID || res.Run != nil {
			e.Errorf("answer %+v, want run %s", res, held.ID)
		}
		p = fresh("w")
		p.ID, p.Minted = held.ID, false
		if res := e.enqueue(p)[0]; !res.Deduped || res.Run != nil {
			e.Errorf("answer %+v to an id that is taken", res)
		}
	}},
	{"a run that was handed over is one that was claimed", func(e *env) {
		e.register("w")
		p := e.params(fresh("w"))
		p.Key, p.Tenant, p.Priority, p.EnqueuedBy, p.Parent, p.Traceparent = p.ID, "t", 3, "me", uid(90), "00-a-b-01"
		res := e.enqueue(p)[0]
		var r job.Run
		if res.Run != nil {
			r = *res.Run
		} else {
			r = e.claimOne("w")
		}
		want := job.Run{
			ID: p.ID, Job: p.Job, Queue: p.Queue, Tenant: "t", Key: p.ID, State: job.Running, Priority: 3, Attempt: 1, MaxAttempts: p.MaxAttempts, Claims: 1,
			Worker: "w", Parent: p.Parent, EnqueuedBy: "me", Traceparent: "00-a-b-01", Input: p.Input,
		}
		if d := cmp.Diff(want, r, cmpopts.IgnoreFields(job.Run{}, "RunAt", "CreatedAt", "StartedAt", "ClaimedAt")); d != "" {
			e.Errorf("run (-want +got):\n%s", d)
		}
		if d := cmp.Diff(e.get(p.ID), r, cmpopts.EquateEmpty()); d != "" {
			e.Errorf("run (-stored +got):\n%s", d)
		}
		if len(e.claim("w", 5)) != 0 {
			e.Error("it was claimed again")
		}
		if renewed, err := e.db.Renew(e.ctx, store.RenewParams{Worker: "w", Lease: lease, Held: []job.Ref{refOf(r)}}); err != nil || !renewed.Alive || len(renewed.Lost) != 0 {
			e.Errorf("renewal %+v, %v", renewed, err)
		}
		if !e.saveStep(store.StepParams{Ref: refOf(r), Name: "a"}).Landed {
			e.Error("a step did not land")
		}
		e.finish(r, job.Completed, job.Done)
		e.wantState(r.ID, job.Done)
	}},
	{"a run that was handed over is ready again when its worker leaves", func(e *env) {
		e.register("w")
		id := e.add(fresh("w"))
		if err := e.db.Deregister(e.ctx, "w"); err != nil {
			e.Fatal(err)
		}
		e.wantState(id, job.Ready)
	}},
}
