package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// parkedTests let what a run is parked for come while it parks. Whoever loses a
// wake leaves a run suspended for ever; the tests do not wait for that, but look
// at what the store says when everybody is done.
var parkedTests = []test{
	{"an event that is published while runs park is past their place or wakes them", func(e *env) {
		const runs, publishers = 6, 3
		e.register("w")
		for round := range 12 {
			var params []store.EnqueueParams
			for range runs {
				params = append(params, store.EnqueueParams{})
			}
			e.enqueue(params...)
			claimed := e.claim("w", runs)
			var events []store.EventParams
			for range publishers {
				events = append(events, e.event(store.EventParams{Topic: "t"}))
			}
			var mu sync.Mutex
			last := int64(0)
			parallel(runs+publishers, func(i int) {
				if i >= runs {
					res, err := e.db.Publish(e.ctx, events[i-runs:i-runs+1])
					if err != nil {
						e.Errorf("publish: %v", err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					last = max(last, res[0].Seq)
					return
				}
				_, err := e.db.Settle(e.ctx, []store.SettleParams{{
					Ref: refOf(claimed[i]), Outcome: job.Slept, To: job.Suspended, Step: waitFor("w", time.Hour, store.WaitParams{Topic: "t", FromNow: true}),
				}})
				if err != nil {
					e.Errorf("settle: %v", err)
				}
			})
			for _, r := range claimed {
				rec, state := e.record(r.ID, "w"), e.get(r.ID).State
				switch {
				case rec.Status == job.StepWaiting && state == job.Suspended && rec.Place >= last:
				case rec.Status == job.StepCompleted && state == job.Ready && rec.Place <= last:
				default:
					e.Fatalf("round %d: run %s is %s, its wait %s at place %d, the last event is %d", round, r.ID, state, rec.Status, rec.Place, last)
				}
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID}); err != nil {
					e.Fatal(err)
				}
			}
		}
	}},
	{"a run that waits again and again gets every event once, in order", func(e *env) {
		const publishers, each = 3, 15
		r := e.start("w", store.EnqueueParams{})
		place := e.saveStep(with(waitFor("from here", 0, store.WaitParams{Topic: "t", Key: "k", FromNow: true}), r)).Place
		var events []store.EventParams
		for i := range publishers * each {
			events = append(events, e.event(store.EventParams{Topic: "t", Key: "k", Payload: fmt.Append(nil, i)}))
			if i%3 == 0 { // others on the topic
				events[i].Key = "other"
			}
		}
		done := make(chan struct{})
		var wanted []int64
		go func() {
			defer close(done)
			var mu sync.Mutex
			parallel(publishers, func(p int) {
				for i := p * each; i < (p+1)*each; i++ {
					res, err := e.db.Publish(e.ctx, events[i:i+1])
					if err != nil {
						e.Errorf("publish: %v", err)
						return
					}
					if events[i].Key == "k" {
						mu.Lock()
						wanted = append(wanted, res[0].Seq)
						mu.Unlock()
					}
				}
			})
		}()
		var got []int64
		for n := 0; ; n++ {
			name := fmt.Sprint("w", n)
			e.park(r, waitFor(name, time.Hour, store.WaitParams{Topic: "t", Key: "k", After: place}))
			published := false
			for {
				select {
				case <-done:
					published = true // before what follows is looked at
				default:
				}
				if runs := e.claim("w", 1); len(runs) == 1 {
					r = runs[0]
					break
				}
				if published {
					break
				}
			}
			rec := e.record(r.ID, name)
			if rec.Status != job.StepCompleted {
				if !published {
					e.Fatalf("it was woken by nothing: %+v", rec)
				}
				break
			}
			got, place = append(got, rec.Place), rec.Place
		}
		if len(got) != len(wanted) {
			e.Fatalf("got %d events of %d: %v of %v", len(got), len(wanted), got, wanted)
		}
		for i := range got {
			if i > 0 && got[i] <= got[i-1] {
				e.Errorf("event %d came after %d", got[i], got[i-1])
			}
		}
	}},
	{"children that end while their parent parks wake it", func(e *env) {
		const workers, children = 4, 20
		parent := e.start("w", store.EnqueueParams{})
		e.invoke(parent, children-1, e.children(parent, children, nil)...)
		for i := range workers {
			e.register(fmt.Sprint("w", i))
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			parallel(workers, func(i int) {
				worker := fmt.Sprint("w", i)
				for {
					res, err := e.db.Claim(e.ctx, store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: queueC, Limit: 1 + i%2}}})
					if err != nil || len(res.Runs) == 0 {
						if err != nil {
							e.Errorf("claim: %v", err)
						}
						return
					}
					var batch []store.SettleParams
					for _, r := range res.Runs {
						batch = append(batch, store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte("1"), Parent: r.Parent})
					}
					if _, err := e.db.Settle(e.ctx, batch); err != nil {
						e.Errorf("settle: %v", err)
					}
				}
			})
		}()
		for over := false; ; {
			select {
			case <-done:
				over = true
			default:
			}
			runs := e.claim("w", 1)
			if len(runs) == 0 {
				if over {
					live := 0
					for _, s := range e.steps(parent.ID) {
						if s.Status == job.StepWaiting {
							live++
						}
					}
					e.Fatalf("all children have ended, %d records wait, and the parent is %s", live, e.get(parent.ID).State)
				}
				continue
			}
			live := 0
			for _, s := range e.steps(parent.ID) {
				if s.Status == job.StepWaiting {
					live++
				}
			}
			if live == 0 {
				<-done
				return
			}
			e.invoke(runs[0], live-1)
		}
	}},
	{"a parent that is cancelled while its children end leaves none of them live", func(e *env) {
		for round := range 6 {
			worker := fmt.Sprint("w", round)
			parent := e.start(worker, store.EnqueueParams{})
			e.invoke(parent, 0, e.children(parent, 3, nil)...)
			running := []job.Run{e.claimChild(worker), e.claimChild(worker)}
			parallel(3, func(i int) {
				if i < 2 {
					r := running[i]
					_, err := e.db.Settle(e.ctx, []store.SettleParams{{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte("1"), Parent: r.Parent}})
					if err != nil {
						e.Errorf("settle: %v", err)
					}
					return
				}
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: parent.ID}); err != nil {
					e.Errorf("cancel: %v", err)
				}
			})
			e.wantState(parent.ID, job.Cancelled)
			for _, s := range e.steps(parent.ID) {
				child := e.get(s.Child)
				if child.State.Live() || s.Status == job.StepWaiting || s.Status == job.StepCompleted != (child.State == job.Done) {
					e.Errorf("round %d: child %s, record %s", round, child.State, s.Status)
				}
			}
		}
	}},
}
