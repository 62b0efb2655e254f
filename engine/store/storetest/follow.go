package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// told is a run that another's end enqueues.
func (e *env) told(p store.EnqueueParams) store.EnqueueParams {
	p.Queue = "told"
	return e.params(p)
}

// wantTold checks which runs the ends have enqueued.
func (e *env) wantTold(want ...string) {
	e.Helper()
	got := ids(e.list(store.ListParams{Queue: "told"}))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.Fatalf("told are %v, want %v", got, want)
	}
}

var followTests = []test{
	// (OS2, OS3)
	{"what follows a run commits with its end, once", func(e *env) {
		for _, end := range outcomes {
			if !end.to.Terminal() {
				continue
			}
			e.register("w" + string(end.outcome))
			id := e.add(store.EnqueueParams{})
			r := e.claimOne("w" + string(end.outcome))
			told := e.told(store.EnqueueParams{Parent: id, Tenant: "t", Key: "settled:" + id, Input: []byte(`{"run":1}`), Priority: 3})
			p := store.SettleParams{Ref: refOf(r), Outcome: end.outcome, To: end.to, Enqueue: []store.EnqueueParams{told}}
			first := e.settle(p)
			// The answer was lost, and the one who asks again has made another id of it.
			p.Enqueue = []store.EnqueueParams{told}
			p.Enqueue[0].ID = e.told(store.EnqueueParams{}).ID
			if again := e.settle(p); !first.Landed || !again.Landed {
				e.Fatalf("%s: %+v, then %+v", end.outcome, first, again)
			}
			got := e.list(store.ListParams{Queue: "told", Parent: id})
			if len(got) != 1 || got[0].ID != told.ID || got[0].Tenant != "t" || got[0].Key != told.Key || got[0].State != job.Ready || got[0].Priority != 3 {
				e.Fatalf("%s: told %+v", end.outcome, got)
			}
			if in := e.get(told.ID).Input; string(in) != `{"run":1}` {
				e.Fatalf("input %s", in)
			}
		}
	}},
	{"what follows is claimed like any run", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		told := e.told(store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Enqueue: []store.EnqueueParams{told}})
		res, err := e.db.Claim(e.ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "told", Limit: 5}}})
		if err != nil || len(res.Runs) != 1 || res.Runs[0].ID != told.ID {
			e.Fatalf("claimed %+v, %v", res, err)
		}
	}},
	{"a settle that misses is followed by nothing", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		stale := refOf(r)
		stale.Claim = 7
		if e.settle(store.SettleParams{Ref: stale, Outcome: job.Completed, To: job.Done, Enqueue: []store.EnqueueParams{e.told(store.EnqueueParams{})}}).Landed {
			e.Fatal("a stale settle landed")
		}
		e.wantTold()
	}},
	{"what follows may take a key that the batch has freed", func(e *env) {
		e.register("w")
		a, b := e.add(store.EnqueueParams{Key: "a"}), e.add(store.EnqueueParams{Key: "b"})
		var batch []store.SettleParams
		for _, r := range e.claim("w", 2) {
			other := map[string]string{"a": "b", "b": "a"}[r.Key]
			batch = append(batch, store.SettleParams{Ref: refOf(r), Outcome: job.Dropped, To: job.Failed, Enqueue: []store.EnqueueParams{
				e.params(store.EnqueueParams{Key: other, EnqueuedBy: "end"}),
			}})
		}
		if res, err := e.db.Settle(e.ctx, batch); err != nil || len(res) != 2 || !res[0].Landed || !res[1].Landed {
			e.Fatal(res, err)
		}
		for _, id := range []string{a, b} {
			e.wantState(id, job.Failed)
		}
		if got := e.list(store.ListParams{State: job.Ready}); len(got) != 2 || got[0].Key == got[1].Key {
			e.Fatalf("ready %+v", got)
		}
	}},
	{"what follows and has no id is refused, and nothing ends", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		told := e.told(store.EnqueueParams{})
		told.ID = "no id"
		_, err := e.db.Settle(e.ctx, []store.SettleParams{{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Enqueue: []store.EnqueueParams{told}}})
		e.wantCode(err, job.CodeIDInvalid)
		e.wantState(r.ID, job.Running)
	}},
	// (OS6)
	{"what follows a burial commits with it, and only with it", func(e *env) {
		last, more := e.add(store.EnqueueParams{MaxAttempts: 1}), e.add(store.EnqueueParams{MaxAttempts: 2})
		e.register("w")
		e.claim("w", 2)
		e.db.Advance(lease)
		told := e.told(store.EnqueueParams{Parent: last})
		refused := errors.New("no")
		p := store.ReclaimParams{Follow: func(job.Run) ([]store.EnqueueParams, error) { return nil, refused }}
		if res, err := e.db.Reclaim(e.ctx, p); !errors.Is(err, refused) || len(res.Buried)+len(res.Requeued) != 0 {
			e.Fatalf("a reclaim that nothing can follow answers %+v, %v", res, err)
		}
		e.wantState(last, job.Running)
		var seen []job.Run
		p.Retention = map[string]time.Duration{jobA: time.Hour}
		p.Follow = func(r job.Run) ([]store.EnqueueParams, error) {
			seen = []job.Run{r}
			return []store.EnqueueParams{told}, nil
		}
		e.reclaimWith(p)
		e.reclaimWith(p)
		e.wantState(more, job.Ready)
		e.wantState(last, job.Dead)
		e.wantTold(told.ID)
		if r := seen[0]; r.ID != last || r.State != job.Dead || r.Attempt != 1 || r.Error.Code != job.CodeMaxAttempts || r.Claims != 1 {
			e.Fatalf("told of %+v", r)
		}
	}},
}
