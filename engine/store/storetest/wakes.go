package storetest

import (
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// wakes subscribes and returns what to wait with until queue, or "" for any, is
// announced.
func (e *env) wakes() (next func(queue string), stop func()) {
	got := make(chan string, 100)
	stop = e.db.Wakes(func(queue string) {
		select {
		case got <- queue:
		default:
		}
	})
	return func(queue string) {
		e.Helper()
		for {
			if q := <-got; q == queue || q == "" {
				return
			}
		}
	}, stop
}

var wakeTests = []test{
	// (E8, W22, O10)
	{"whatever makes a run ready wakes its queue", func(e *env) {
		e.register("w")
		next, stop := e.wakes()
		defer stop()
		e.add(store.EnqueueParams{Queue: "a"})
		next("a")
		res := e.claimAll("w", store.QueueLimit{Queue: "a", Limit: 1})
		r := res.Runs[0]
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "s", Enqueue: []store.EnqueueParams{e.params(store.EnqueueParams{Queue: "b"})}})
		next("b")
		e.finish(r, job.Interrupted, job.Ready)
		next("a")
		r = e.claimAll("w", store.QueueLimit{Queue: "a", Limit: 1}).Runs[0]
		e.finish(r, job.DeadLettered, job.Dead)
		e.requeue(store.RequeueParams{ID: r.ID})
		next("a")
		e.claimAll("w", store.QueueLimit{Queue: "a", Limit: 1})
		e.db.Advance(lease)
		e.reclaim()
		next("a")
		e.pause(store.PauseQueue, "a")
		e.resume(store.PauseQueue, "a")
		next("a")
		_, err := e.db.Promote(e.ctx, store.PromoteParams{ID: e.add(store.EnqueueParams{Queue: "c", Delay: time.Hour})})
		if err != nil {
			e.Fatal(err)
		}
		next("c")
	}},
	// (E5) Workers that were not told would find it when their poll comes round.
	{"a run that is due within the second wakes its queue", func(e *env) {
		next, stop := e.wakes()
		defer stop()
		e.add(store.EnqueueParams{Queue: "a", Delay: 500 * time.Millisecond})
		next("a")
	}},
	{"a stopped listener is not called", func(e *env) {
		called := make(chan string, 10)
		stop := e.db.Wakes(func(q string) { called <- q })
		stop()
		next, stop2 := e.wakes()
		defer stop2()
		e.add(store.EnqueueParams{Queue: "a"})
		next("a")
		select {
		case q := <-called:
			e.Fatalf("called with %q after stop", q)
		default:
		}
	}},
	{"every listener is called", func(e *env) {
		next1, stop1 := e.wakes()
		defer stop1()
		next2, stop2 := e.wakes()
		defer stop2()
		e.add(store.EnqueueParams{Queue: "a"})
		next1("a")
		next2("a")
	}},
}
