package storetest

import (
	"slices"

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
	// (Z2)
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
	{"a renewal tells which queues are served, if it says any", func(e *env) {
		e.register("w")
		e.register("other")
		for _, queues := range [][]string{{"a", "b'c"}, nil, {}} {
			want := queues
			if queues == nil {
				want = []string{"a", "b'c"}
			}
			if _, err := e.db.Renew(e.ctx, store.RenewParams{Worker: "w", Lease: lease, Queues: queues}); err != nil {
				e.Fatal(err)
			}
			for _, w := range e.workers() {
				if w.ID == "w" && !slices.Equal(w.Queues, want) || w.ID == "other" && slices.Equal(w.Queues, want) && len(want) > 0 {
					e.Errorf("%s serves %q after %q", w.ID, w.Queues, queues)
				}
			}
		}
	}},
	// Progress is seen while a run runs, and is its own claim's.
	{"a renewal carries the progress of what is held, and of nothing else", func(e *env) {
		e.register("w")
		e.register("other")
		for range 4 {
			e.add(store.EnqueueParams{})
		}
		runs := e.claim("w", 4)
		e.finish(runs[1], job.Completed, job.Done)
		e.finish(runs[2], job.Interrupted, job.Ready)
		again := e.claimOne("other") // the third, under another claim
		half := job.Progress{Permille: 500, Note: "half\x00 'way'"}
		var all []store.HeldProgress
		for _, r := range runs {
			all = append(all, store.HeldProgress{Ref: refOf(r), Progress: half})
		}
		all = append(all, store.HeldProgress{Ref: refOf(again), Progress: half}, store.HeldProgress{Ref: job.Ref{RunID: uid(700), Worker: "w", Claim: 1}, Progress: half})
		if _, err := e.db.Renew(e.ctx, store.RenewParams{Worker: "w", Lease: lease, Progress: all}); err != nil {
			e.Fatal(err)
		}
		for i, want := range []job.Progress{half, {}, {}, half} {
			if got := e.get(runs[i].ID); got.Progress != want {
				e.Errorf("run %d, %s: progress %+v, want %+v", i, got.State, got.Progress, want)
			}
		}
		// It outlasts a settle that says none, and one that says more wins.
		e.finish(runs[3], job.Retried, job.Ready)
		if got := e.get(runs[3].ID); got.Progress != half {
			e.Errorf("a settle forgot the progress: %+v", got.Progress)
		}
		e.db.Advance(lease)
		res, err := e.db.Renew(e.ctx, store.RenewParams{Worker: "w", Lease: lease, Queues: []string{"late"},
			Progress: []store.HeldProgress{{Ref: refOf(runs[0]), Progress: job.Progress{Permille: 900}}}})
		if err != nil || res.Alive {
			e.Fatalf("%+v %v", res, err)
		}
		if got := e.get(runs[0].ID); got.Progress != half {
			e.Errorf("a worker whose lease has lapsed wrote progress: %+v", got.Progress)
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
