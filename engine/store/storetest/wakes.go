package storetest

import (
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// wakes subscribes and returns what to wait with until queue, or "" for any, is
// announced: by what do does, and by nothing that was announced before. One that never
// comes fails the test, after a time that only a hang takes.
func (e *env) wakes() (next func(queue string, do func()), stop func()) {
	got := make(chan string, 100)
	stop = e.db.Wakes(func(queue string) {
		select {
		case got <- queue:
		default:
		}
	})
	return func(queue string, do func()) {
		e.Helper()
		for len(got) > 0 {
			<-got
		}
		do()
		hang := time.After(time.Minute)
		for {
			select {
			case q := <-got:
				if q == queue || q == "" {
					return
				}
			case <-hang:
				e.Fatalf("nothing woke queue %s", queue)
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
		next("a", func() { e.add(store.EnqueueParams{Queue: "a"}) })
		claimed := func() job.Run {
			e.Helper()
			return e.claimAll("w", store.QueueLimit{Queue: "a", Limit: 1}).Runs[0]
		}
		r := claimed()
		next("b", func() {
			e.saveStep(store.StepParams{Ref: refOf(r), Name: "s", Enqueue: []store.EnqueueParams{e.params(store.EnqueueParams{Queue: "b"})}})
		})
		next("a", func() { e.finish(r, job.Interrupted, job.Ready) })
		r = claimed()
		e.finish(r, job.DeadLettered, job.Dead)
		next("a", func() { e.requeue(store.RequeueParams{ID: r.ID}) })
		claimed()
		e.db.Advance(lease)
		next("a", func() { e.reclaim() })
		e.pause(store.PauseQueue, "a")
		next("a", func() { e.resume(store.PauseQueue, "a") })
		later := e.add(store.EnqueueParams{Queue: "c", Delay: time.Hour})
		next("c", func() {
			if _, err := e.db.Promote(e.ctx, store.PromoteParams{ID: later}); err != nil {
				e.Fatal(err)
			}
		})
	}},
	// (M6)
	{"a batch wakes a queue once", func(e *env) {
		var mu sync.Mutex
		count := map[string]int{}
		stopCount := e.db.Wakes(func(q string) {
			mu.Lock()
			defer mu.Unlock()
			count[q]++
		})
		defer stopCount()
		next, stop := e.wakes()
		defer stop()
		var batch []store.EnqueueParams
		for range 200 {
			batch = append(batch, e.params(store.EnqueueParams{Queue: "a"}), e.params(store.EnqueueParams{Queue: "b"}))
		}
		next("a", func() { e.enqueue(batch...) })
		next("z", func() { e.add(store.EnqueueParams{Queue: "z"}) }) // after which what the batch has woken is told
		mu.Lock()
		defer mu.Unlock()
		// Beside its own word a process may hear the database's, of which there is one.
		if n := max(count["a"], count["b"]); n > 2 || count["a"] == 0 || count["b"] == 0 {
			e.Fatalf("the batch woke %v", count)
		}
	}},
	// (E5) Workers that were not told would find it when their poll comes round.
	{"a run that is due within the second wakes its queue", func(e *env) {
		next, stop := e.wakes()
		defer stop()
		next("a", func() { e.add(store.EnqueueParams{Queue: "a", Delay: 500 * time.Millisecond}) })
	}},
	{"a stopped listener is not called", func(e *env) {
		called := make(chan string, 10)
		stop := e.db.Wakes(func(q string) { called <- q })
		stop()
		next, stop2 := e.wakes()
		defer stop2()
		next("a", func() { e.add(store.EnqueueParams{Queue: "a"}) })
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
		next1("a", func() {
			next2("a", func() { e.add(store.EnqueueParams{Queue: "a"}) })
		})
	}},
}
