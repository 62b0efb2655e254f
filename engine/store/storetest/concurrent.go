package storetest

import (
	"context"
	"fmt"
	"sync"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func contextWithCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// parallel runs f n times at once and waits.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

var concurrentTests = []test{
	// (C1)
	{"eight claimers over a hundred runs hand out each once", func(e *env) {
		var batch []store.EnqueueParams
		for range 100 {
			batch = append(batch, store.EnqueueParams{Tenant: fmt.Sprint(len(batch) % 3)})
		}
		e.enqueue(batch...)
		for i := range 8 {
			e.register(fmt.Sprintf("w%d", i))
		}
		var mu sync.Mutex
		got := map[string]int{}
		parallel(8, func(i int) {
			for {
				res, err := e.db.Claim(e.ctx, store.ClaimParams{Worker: fmt.Sprintf("w%d", i), Queues: []store.QueueLimit{{Queue: queueA, Limit: 1 + i%4}}})
				if err != nil {
					e.Errorf("claim: %v", err)
					return
				}
				if len(res.Runs) == 0 {
					return
				}
				mu.Lock()
				for _, r := range res.Runs {
					got[r.ID]++
				}
				mu.Unlock()
			}
		})
		// One may have locked more than it took, and others have passed that over: a
		// later claim finds it.
		for len(e.list(store.ListParams{State: job.Ready})) > 0 {
			for _, r := range e.claim("w0", 100) {
				got[r.ID]++
			}
		}
		if len(got) != 100 {
			e.Fatalf("%d runs were handed out, want 100", len(got))
		}
		for id, n := range got {
			if n != 1 {
				e.Errorf("run %s was handed out %d times", id, n)
			}
		}
	}},
	// (I11)
	{"eight enqueues of one key are one run", func(e *env) {
		var params []store.EnqueueParams
		for range 8 {
			params = append(params, e.params(store.EnqueueParams{Key: "k"}))
		}
		results := make([]store.EnqueueResult, 8)
		parallel(8, func(i int) {
			res, err := e.db.Enqueue(e.ctx, params[i:i+1])
			if err != nil {
				e.Errorf("enqueue: %v", err)
				return
			}
			results[i] = res[0]
		})
		fresh := 0
		for _, r := range results {
			if !r.Deduped {
				fresh++
			}
			if r.ID != results[0].ID {
				e.Errorf("answered %s and %s", r.ID, results[0].ID)
			}
		}
		if n := len(e.list(store.ListParams{})); fresh != 1 || n != 1 {
			e.Fatalf("%d new runs answered, %d stored", fresh, n)
		}
	}},
	// (I6, E11) Whoever meets a key whose holder is just ending gets one of the two.
	{"an enqueue beside the end of its key's holder is that run or a new one", func(e *env) {
		e.register("w")
		for range 50 {
			id := e.add(store.EnqueueParams{Key: "k"})
			r := e.claimOne("w")
			again := e.params(store.EnqueueParams{Key: "k"})
			var res []store.EnqueueResult
			var err error
			parallel(2, func(i int) {
				if i == 0 {
					if s, err := e.db.Settle(e.ctx, []store.SettleParams{{Ref: refOf(r), Outcome: job.Completed, To: job.Done}}); err != nil || !s[0].Landed {
						e.Errorf("settle: %+v, %v", s, err)
					}
					return
				}
				res, err = e.db.Enqueue(e.ctx, []store.EnqueueParams{again})
			})
			if err != nil {
				e.Fatal(err)
			}
			live, err := e.db.FindLive(e.ctx, jobA, "", "k")
			if err != nil {
				e.Fatal(err)
			}
			switch {
			case res[0].Deduped && res[0].ID == id && live == "":
			case !res[0].Deduped && res[0].ID == again.ID && live == again.ID:
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: live}); err != nil {
					e.Fatal(err)
				}
			default:
				e.Fatalf("answered %+v of %s and %s; the key is held by %q", res[0], id, again.ID, live)
			}
		}
	}},
	// (O5) A body never runs of a run that is gone.
	{"of a claim and a delete at once, one has the run", func(e *env) {
		e.register("w")
		for range 50 {
			id := e.add(store.EnqueueParams{})
			var claimed []job.Run
			var deleted error
			parallel(2, func(i int) {
				if i == 0 {
					res, err := e.db.Claim(e.ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: queueA, Limit: 1}}})
					if err != nil {
						e.Errorf("claim: %v", err)
					}
					claimed = res.Runs
					return
				}
				_, deleted = e.db.Delete(e.ctx, store.DeleteParams{ID: id})
			})
			switch {
			case len(claimed) == 0 && deleted == nil:
				_, err := e.db.Get(e.ctx, id)
				e.wantCode(err, job.CodeNotFound)
			case len(claimed) == 1 && deleted != nil:
				e.wantCode(deleted, job.CodeNotRemovable)
				e.finish(claimed[0], job.Completed, job.Done)
			default:
				e.Fatalf("%d runs were claimed, and the delete was answered with %v", len(claimed), deleted)
			}
		}
	}},
	{"of a settle and a cancel at once, one has the verdict", func(e *env) {
		e.register("w")
		for range 50 {
			id := e.add(store.EnqueueParams{})
			r := e.claimOne("w")
			var landed, cancelled bool
			parallel(2, func(i int) {
				if i == 0 {
					res, err := e.db.Settle(e.ctx, []store.SettleParams{{Ref: refOf(r), Outcome: job.Completed, To: job.Done}})
					landed = err == nil && res[0].Landed
					return
				}
				_, err := e.db.Cancel(e.ctx, store.CancelParams{ID: id})
				cancelled = err == nil
			})
			state := e.get(id).State
			if landed == cancelled || landed != (state == job.Done) || cancelled != (state == job.Cancelled) {
				e.Fatalf("landed %v, cancelled %v, state %s", landed, cancelled, state)
			}
		}
	}},
	// (FL1)
	{"of a renewal and a reclaim at once, the renewal's answer is the truth", func(e *env) {
		for i := range 20 {
			w := fmt.Sprintf("w%d", i)
			r := e.start(w, store.EnqueueParams{MaxAttempts: 100})
			e.db.Advance(lease)
			var res store.RenewResult
			parallel(2, func(i int) {
				var err error
				if i == 0 {
					res, err = e.db.Renew(e.ctx, store.RenewParams{Worker: w, Lease: lease, Held: []job.Ref{refOf(r)}})
				} else {
					_, err = e.db.Reclaim(e.ctx, store.ReclaimParams{Limit: 10})
				}
				if err != nil {
					e.Error(err)
				}
			})
			if res.Alive {
				e.Fatal("a lapsed lease was renewed")
			}
			got := e.wantState(r.ID, job.Ready)
			if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: got.ID}); err != nil {
				e.Fatal(err)
			}
		}
	}},
}
