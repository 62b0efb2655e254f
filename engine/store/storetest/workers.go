package storetest

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func (e *env) renew(worker string, held ...job.Ref) store.RenewResult {
	e.Helper()
	res, err := e.db.Renew(e.ctx, store.RenewParams{Worker: worker, Lease: lease, Held: held})
	if err != nil {
		e.Fatalf("renew %s: %v", worker, err)
	}
	return res
}

func (e *env) workers() []store.Worker {
	e.Helper()
	out, err := e.db.ListWorkers(e.ctx)
	if err != nil {
		e.Fatalf("list workers: %v", err)
	}
	return out
}

func (e *env) deregister(worker string) {
	e.Helper()
	if err := e.db.Deregister(e.ctx, worker); err != nil {
		e.Fatalf("deregister %s: %v", worker, err)
	}
}

var workerTests = []test{
	{"a registered worker is listed as it was given", func(e *env) {
		now := e.now()
		for _, id := range []string{"w2", "w1"} {
			err := e.db.Register(e.ctx, store.RegisterParams{ID: id, Host: "h'1", PID: 42, Queues: []string{"a", "b,c"}, Lease: lease})
			if err != nil {
				e.Fatal(err)
			}
		}
		e.add(store.EnqueueParams{})
		e.add(store.EnqueueParams{})
		e.claim("w1", 2)
		got := e.workers()
		if len(got) != 2 {
			e.Fatalf("%d workers", len(got))
		}
		w := got[0]
		e.wantTime("started", w.StartedAt, now)
		want := store.Worker{
			ID: "w1", Host: "h'1", PID: 42, Queues: []string{"a", "b,c"}, Running: 2,
			StartedAt: w.StartedAt, RenewedAt: w.StartedAt, ExpiresAt: w.StartedAt.Add(lease),
		}
		if d := cmp.Diff(want, w); d != "" {
			e.Fatalf("worker (-want +got):\n%s", d)
		}
	}},
	// (I13)
	{"an id that is registered is refused", func(e *env) {
		e.register("w")
		err := e.db.Register(e.ctx, store.RegisterParams{ID: "w", Lease: lease})
		e.wantRefused(err, job.CodeInvalid)
	}},
	{"a lease of nothing is refused", func(e *env) {
		e.wantRefused(e.db.Register(e.ctx, store.RegisterParams{ID: "w"}), job.CodeInvalid)
		e.register("w")
		_, err := e.db.Renew(e.ctx, store.RenewParams{Worker: "w"})
		e.wantRefused(err, job.CodeInvalid)
	}},
	{"a renewal extends the lease from now", func(e *env) {
		e.register("w")
		e.db.Advance(lease / 2)
		now := e.now()
		if res := e.renew("w"); !res.Alive || len(res.Lost) != 0 {
			e.Fatalf("answer %+v", res)
		}
		w := e.workers()[0]
		e.wantTime("renewed", w.RenewedAt, now)
		e.wantTime("expires", w.ExpiresAt, now.Add(lease))
		e.db.Advance(lease * 3 / 4)
		if res := e.renew("w"); !res.Alive {
			e.Fatal("a renewed lease lapsed at its first end")
		}
	}},
	// (decision 2)
	{"a renewal answers which held runs are no longer the worker's", func(e *env) {
		e.register("w")
		for range 4 {
			e.add(store.EnqueueParams{})
		}
		runs := e.claim("w", 4)
		var held []job.Ref
		for _, r := range runs {
			held = append(held, refOf(r))
		}
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: runs[0].ID}); err != nil {
			e.Fatal(err)
		}
		e.finish(runs[1], job.Completed, job.Done)
		// The third is claimed again: the same worker, another ordinal.
		e.finish(runs[2], job.Interrupted, job.Ready)
		if again := e.claimOne("w"); again.ID != runs[2].ID {
			e.Fatalf("claimed %s", again.ID)
		}
		gone := job.Ref{RunID: uid(700), Worker: "w", Claim: 1}
		res := e.renew("w", append(held, gone)...)
		want := []store.LostRun{
			{Ref: held[0], State: job.Cancelled}, {Ref: held[1], State: job.Done}, {Ref: held[2], State: job.Running}, {Ref: gone},
		}
		sortLost(res.Lost)
		sortLost(want)
		if d := cmp.Diff(want, res.Lost); d != "" || !res.Alive {
			e.Fatalf("alive %v, lost (-want +got):\n%s", res.Alive, d)
		}
	}},
	// (C13) Nothing revives a lease.
	{"a lapsed worker's renewal is refused and stays refused", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.db.Advance(lease)
		for range 2 {
			res := e.renew("w", refOf(r))
			if res.Alive || len(res.Lost) != 1 || res.Lost[0].Ref != refOf(r) || res.Lost[0].State != job.Running {
				e.Fatalf("answer %+v", res)
			}
		}
		e.reclaim()
		e.wantState(r.ID, job.Ready)
	}},
	{"an unknown worker's renewal loses all it holds", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		res := e.renew("nobody", job.Ref{RunID: r.ID, Worker: "nobody", Claim: 1})
		if res.Alive || len(res.Lost) != 1 {
			e.Fatalf("answer %+v", res)
		}
		if len(e.workers()) != 1 {
			e.Fatal("a renewal added a worker")
		}
	}},
	// (FL10)
	{"deregistering hands the runs back at once and uncounted", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		now := e.now()
		e.deregister("w")
		got := e.wantState(r.ID, job.Ready)
		if got.Attempt != 0 || got.Claims != 1 || got.Orphans != 0 || got.Worker != "" {
			e.Fatalf("stored %+v", got)
		}
		e.wantTime("due", got.RunAt, now)
		if len(e.workers()) != 0 {
			e.Fatal("the worker is still listed")
		}
		if res := e.renew("w", refOf(r)); res.Alive || len(e.workers()) != 0 {
			e.Fatal("a renewal brought a deregistered worker back")
		}
		if res := e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done}); res.Landed {
			e.Fatal("a deregistered worker's settle landed")
		}
		e.register("w2")
		if again := e.claimOne("w2"); again.Attempt != 1 || again.Claims != 2 {
			e.Fatalf("claimed %+v", again)
		}
	}},
	{"deregistering an unknown worker does nothing", func(e *env) {
		e.deregister("nobody")
	}},
	// Registering as the only one ends the leases a crash left behind.
	{"a worker alone lapses every other", func(e *env) {
		r := e.start("old", store.EnqueueParams{})
		err := e.db.Register(e.ctx, store.RegisterParams{ID: "new", Lease: lease, Alone: true})
		if err != nil {
			e.Fatal(err)
		}
		if res := e.renew("old", refOf(r)); res.Alive {
			e.Fatal("the other worker is alive")
		}
		if res := e.reclaim(); len(res.Requeued) != 1 {
			e.Fatalf("reclaimed %+v", res)
		}
		if res := e.renew("new"); !res.Alive {
			e.Fatal("the worker itself lapsed")
		}
	}},
}

func sortLost(l []store.LostRun) {
	slices.SortFunc(l, func(a, b store.LostRun) int {
		if a.Ref.RunID < b.Ref.RunID {
			return -1
		}
		return 1
	})
}

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
