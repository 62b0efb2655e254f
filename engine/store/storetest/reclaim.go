package storetest

import (
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func (e *env) reclaimWith(p store.ReclaimParams) store.ReclaimResult {
	e.Helper()
	res, err := e.db.Reclaim(e.ctx, p)
	if err != nil {
		e.Fatalf("reclaim: %v", err)
	}
	return res
}

func (e *env) reclaim() store.ReclaimResult {
	e.Helper()
	return e.reclaimWith(store.ReclaimParams{Limit: 100, MaxOrphans: 3})
}

// orphan has a fresh worker claim one run and lapses it.
func (e *env) orphan(worker string) job.Run {
	e.Helper()
	e.register(worker)
	r := e.claimOne(worker)
	e.db.Advance(lease)
	return r
}

var reclaimTests = []test{
	// (SG10)
	{"a run that compensates is handed out beyond its attempts, to be undone", func(e *env) {
		r := e.start("w", store.EnqueueParams{MaxAttempts: 2})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "a"})
		for attempt := 1; attempt < 4; attempt++ {
			e.db.Advance(2 * lease)
			res, err := e.db.Reclaim(e.ctx, store.ReclaimParams{UnwindJobs: []string{jobA}})
			if err != nil || len(res.Requeued) != 1 || len(res.Buried) != 0 {
				e.Fatalf("attempt %d: %+v, %v", attempt, res, err)
			}
			w := "w" + string(rune('0'+attempt))
			e.register(w)
			if r = e.claimOne(w); r.Attempt != attempt+1 {
				e.Fatalf("claimed for attempt %d, want %d", r.Attempt, attempt+1)
			}
		}
		e.db.Advance(2 * lease)
		res, err := e.db.Reclaim(e.ctx, store.ReclaimParams{UnwindJobs: []string{jobA}})
		if err != nil || len(res.Buried) != 1 || res.Buried[0].Error.Code != job.CodeCompensationFailed {
			e.Fatalf("after as many attempts to undo: %+v, %v", res, err)
		}
	}},
	{"a run without steps is buried, whether or not its job compensates", func(e *env) {
		e.start("w", store.EnqueueParams{MaxAttempts: 1})
		e.db.Advance(2 * lease)
		res, err := e.db.Reclaim(e.ctx, store.ReclaimParams{UnwindJobs: []string{jobA}})
		if err != nil || len(res.Buried) != 1 || res.Buried[0].Error.Code != job.CodeMaxAttempts {
			e.Fatalf("%+v, %v", res, err)
		}
	}},
	// (S3, FL1) A run lost with its worker is not a failed run.
	{"a lapsed worker's run is ready, counted, and not failed", func(e *env) {
		id := e.add(store.EnqueueParams{})
		r := e.orphan("w")
		now := e.now()
		res := e.reclaim()
		if len(res.Requeued) != 1 || len(res.Buried) != 0 || res.Requeued[0].ID != id || res.Requeued[0].State != job.Ready || res.Requeued[0].Orphans != 1 {
			e.Fatalf("answer %+v", res)
		}
		got := e.wantState(id, job.Ready)
		if got.Attempt != 1 || got.Claims != 1 || got.Orphans != 1 || got.Worker != "" || got.Error != (job.Failure{}) {
			e.Fatalf("stored %+v", got)
		}
		e.wantTime("due", got.RunAt, now)
		recs := e.attempts(id)
		if len(recs) != 1 || recs[0].Outcome != job.Orphaned || recs[0].Worker != "w" || recs[0].Error.Code != job.CodeWorkerLost {
			e.Fatalf("timeline %+v", recs)
		}
		if len(e.workers()) != 0 {
			e.Fatal("the lapsed worker is still listed")
		}
		e.register("w2")
		again := e.claimOne("w2")
		if again.Attempt != 2 || again.Claims != 2 {
			e.Fatalf("claimed %+v", again)
		}
		// (C7, P8) The stalled body comes back.
		if res := e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done}); res.Landed {
			e.Fatal("the lost worker's settle landed")
		}
		if res := e.saveStep(store.StepParams{Ref: refOf(r), Name: "late"}); res.Landed {
			e.Fatal("the lost worker's step landed")
		}
	}},
	// (FL1)
	{"a live worker keeps its runs", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.db.Advance(lease - 2*time.Second)
		if res := e.renew("w", refOf(r)); !res.Alive {
			e.Fatal("renewal")
		}
		e.db.Advance(lease / 2)
		if res := e.reclaim(); len(res.Requeued)+len(res.Buried) != 0 {
			e.Fatalf("reclaimed %+v", res)
		}
		e.wantState(r.ID, job.Running)
	}},
	// (S4, C19)
	{"without an attempt left it is buried", func(e *env) {
		id := e.add(store.EnqueueParams{MaxAttempts: 1})
		e.orphan("w")
		now := e.now()
		res := e.reclaimWith(store.ReclaimParams{Limit: 10, MaxOrphans: 3, Retention: map[string]time.Duration{jobA: time.Hour}})
		if len(res.Buried) != 1 || len(res.Requeued) != 0 || res.Buried[0].State != job.Dead || res.Buried[0].Error.Code != job.CodeMaxAttempts {
			e.Fatalf("answer %+v", res)
		}
		got := e.wantState(id, job.Dead)
		if got.Error.Code != job.CodeMaxAttempts || got.Error.Stack != "" || got.Attempt != 1 || got.Worker != "" {
			e.Fatalf("stored %+v", got)
		}
		e.wantTime("finished", got.FinishedAt, now)
		if !got.ExpiresAt.Equal(got.FinishedAt.Add(time.Hour)) {
			e.Fatalf("expires %s", got.ExpiresAt)
		}
		if recs := e.attempts(id); len(recs) != 1 || recs[0].Outcome != job.Orphaned || !recs[0].RunAt.IsZero() {
			e.Fatalf("timeline %+v", recs)
		}
	}},
	// (C19, C21)
	{"a dropping job's is failed, another's dead and kept for ever", func(e *env) {
		drop := e.add(store.EnqueueParams{MaxAttempts: 1, Job: "drop"})
		keep := e.add(store.EnqueueParams{MaxAttempts: 1, Job: "keep"})
		e.register("w")
		e.claim("w", 2)
		e.db.Advance(lease)
		e.reclaimWith(store.ReclaimParams{Limit: 10, DropJobs: []string{"x", "drop"}, Retention: map[string]time.Duration{"drop": time.Hour}})
		e.wantState(drop, job.Failed)
		if got := e.wantState(keep, job.Dead); !got.ExpiresAt.IsZero() {
			e.Fatalf("expires %s", got.ExpiresAt)
		}
	}},
	// (FL2)
	{"after three lost workers in a row it is dead, whatever attempts remain", func(e *env) {
		id := e.add(store.EnqueueParams{MaxAttempts: 50})
		for i := range 3 {
			e.orphan("w" + string(rune('1'+i)))
			res := e.reclaim()
			if buried := len(res.Buried) == 1; buried != (i == 2) {
				e.Fatalf("after %d: %+v", i+1, res)
			}
		}
		if got := e.wantState(id, job.Dead); got.Error.Code != job.CodeWorkerLost || got.Orphans != 3 {
			e.Fatalf("stored %+v", got)
		}
	}},
	{"when both bounds are reached it is the lost workers that are named", func(e *env) {
		id := e.add(store.EnqueueParams{MaxAttempts: 2})
		e.orphan("w1")
		e.reclaimWith(store.ReclaimParams{Limit: 1, MaxOrphans: 2})
		e.orphan("w2")
		e.reclaimWith(store.ReclaimParams{Limit: 1, MaxOrphans: 2})
		if got := e.wantState(id, job.Dead); got.Error.Code != job.CodeWorkerLost {
			e.Fatalf("error %+v", got.Error)
		}
	}},
	{"no bound on lost workers leaves the attempts to decide", func(e *env) {
		id := e.add(store.EnqueueParams{MaxAttempts: 5})
		for i := range 4 {
			e.orphan("w" + string(rune('1'+i)))
			e.reclaimWith(store.ReclaimParams{Limit: 1})
			e.wantState(id, job.Ready)
		}
		e.orphan("w5")
		e.reclaimWith(store.ReclaimParams{Limit: 1})
		if got := e.wantState(id, job.Dead); got.Error.Code != job.CodeMaxAttempts {
			e.Fatalf("error %+v", got.Error)
		}
	}},
	{"a report in between starts the count of lost workers again", func(e *env) {
		id := e.add(store.EnqueueParams{MaxAttempts: 50})
		for i, outcome := range []job.Outcome{job.Retried, job.Interrupted, job.Slept, job.Deferred} {
			w := string(rune('a' + i))
			for n := range 2 {
				e.orphan(w + string(rune('1'+n)))
				e.reclaim()
			}
			e.register(w)
			r := e.claimOne(w)
			to := job.Ready
			if outcome == job.Slept {
				to = job.Suspended
			}
			e.finish(r, outcome, to)
			if got := e.get(id); got.Orphans != 0 {
				e.Fatalf("after %s: %d orphans", outcome, got.Orphans)
			}
		}
	}},
	// A shed run was never begun: what it does to a worker is as unknown as before.
	{"a shed in between does not", func(e *env) {
		id := e.add(store.EnqueueParams{MaxAttempts: 50})
		for i := range 2 {
			e.orphan("w" + string(rune('1'+i)))
			e.reclaim()
		}
		e.register("s")
		e.finish(e.claimOne("s"), job.Shed, job.Ready)
		e.orphan("w3")
		e.reclaim()
		e.wantState(id, job.Dead)
	}},
	// (C20)
	{"the limit bounds what moves, and the next reclaim goes on", func(e *env) {
		e.register("w")
		for range 5 {
			e.add(store.EnqueueParams{})
		}
		e.claim("w", 5)
		e.db.Advance(lease)
		for _, want := range []int{2, 2, 1, 0} {
			if res := e.reclaimWith(store.ReclaimParams{Limit: 2}); len(res.Requeued) != want {
				e.Fatalf("reclaimed %d, want %d", len(res.Requeued), want)
			}
		}
		if len(e.workers()) != 0 {
			e.Fatal("the lapsed worker is still listed")
		}
	}},
	{"several lapsed workers are reclaimed together", func(e *env) {
		e.register("a", "b", "idle")
		e.add(store.EnqueueParams{})
		e.add(store.EnqueueParams{})
		e.claimOne("a")
		e.claimOne("b")
		e.db.Advance(lease)
		if res := e.reclaim(); len(res.Requeued) != 2 {
			e.Fatalf("reclaimed %+v", res)
		}
		if n := len(e.workers()); n != 0 {
			e.Fatalf("%d lapsed workers are still listed", n)
		}
	}},
	{"a suspended run is nobody's and stays", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended, Delay: time.Hour})
		e.db.Advance(lease)
		if res := e.reclaim(); len(res.Requeued)+len(res.Buried) != 0 {
			e.Fatalf("reclaimed %+v", res)
		}
		e.wantState(r.ID, job.Suspended)
	}},
}
