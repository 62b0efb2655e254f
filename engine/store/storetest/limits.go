package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

// capped are the limits of a queue whose usual job may run n at a time.
func capped(n int) *limit.Queue {
	return &limit.Queue{Jobs: map[string]limit.Job{jobA: {Concurrency: n}}}
}

// keyed are those of a queue whose usual job may run one at a time for each key.
func keyed(fail bool) *limit.Queue {
	return &limit.Queue{Jobs: map[string]limit.Job{jobA: {Concurrency: 1, Keyed: true, Fail: fail}}}
}

// addGated enqueues runs of the usual job behind its gate.
func (e *env) addGated(n int) (ids []string) {
	e.Helper()
	for range n {
		ids = append(ids, e.add(store.EnqueueParams{Gate: limit.JobGate(jobA)}))
	}
	return ids
}

func (e *env) addKeyed(key string, p store.EnqueueParams) string {
	e.Helper()
	p.Gate = limit.KeyGate(jobA, key)
	return e.add(p)
}

// claimUnder claims until the store has no more to give at once.
func (e *env) claimUnder(worker string, n int, l *limit.Queue) (runs []job.Run) {
	e.Helper()
	for range 1000 {
		res := e.claimAll(worker, store.QueueLimit{Queue: queueA, Limit: n - len(runs), Limits: l})
		if res.WorkerGone {
			e.Fatalf("claim: worker %s is gone", worker)
		}
		runs = append(runs, res.Runs...)
		if len(runs) == n || len(res.Runs) == 0 && (res.NextDue.IsZero() || res.NextDue.After(res.Now)) {
			return runs
		}
	}
	e.Fatal("a claim is due again and again, and gets nothing")
	return nil
}

func (e *env) wantClaim(what string, got []job.Run, want ...string) {
	e.Helper()
	have := ids(got)
	slices.Sort(have)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(have, want) {
		e.Fatalf("%s: claimed %v, want %v", what, have, want)
	}
}

func (e *env) ready(queue string) int64 {
	e.Helper()
	for _, q := range e.stats().Queues {
		if q.Queue == queue {
			return q.Ready
		}
	}
	return 0
}

var limitTests = []test{
	// (F1)
	{"no more of a job run than its concurrency, whoever claims", func(e *env) {
		e.register("w1", "w2", "w3")
		all := e.addGated(5)
		first := e.claimUnder("w1", 10, capped(2))
		e.wantClaim("two at a time", first, all[0], all[1])
		e.wantClaim("none beside them", e.claimUnder("w2", 10, capped(2)))
		e.finish(first[0], job.Completed, job.Done)
		e.wantClaim("one for the one that ended", e.claimUnder("w3", 10, capped(2)), all[2])
	}},
	// (F3)
	{"jobs without a limit pass beside a full one", func(e *env) {
		e.register("w")
		all := e.addGated(50)
		free := e.add(store.EnqueueParams{Job: "free"})
		e.wantClaim("both", e.claimUnder("w", 10, capped(1)), all[0], free)
	}},
	{"a thousand runs of a busy key do not hide the next key's", func(e *env) {
		e.register("w")
		var batch []store.EnqueueParams
		for range 1000 {
			batch = append(batch, store.EnqueueParams{Gate: limit.KeyGate(jobA, "busy")})
		}
		busy := e.enqueue(batch...)
		other := e.addKeyed("other", store.EnqueueParams{})
		e.wantClaim("one of each", e.claimUnder("w", 5, keyed(false)), busy[0].ID, other)
		late := e.addKeyed("late", store.EnqueueParams{})
		e.wantClaim("and of one that comes later", e.claimUnder("w", 5, keyed(false)), late)
		if n := e.ready(queueA); n != 999 {
			e.Fatalf("%d are counted as ready, want the 999 that wait (S26)", n)
		}
	}},
	{"what waits behind a gate goes in the order of its tenants and priorities", func(e *env) {
		e.register("w")
		hold := e.addGated(1)[0]
		e.wantClaim("the holder", e.claimUnder("w", 5, capped(1)), hold)
		p := func(tenant string, priority int) string {
			return e.add(store.EnqueueParams{Gate: limit.JobGate(jobA), Tenant: tenant, Priority: priority})
		}
		a1, a2, a3 := p("a", 5), p("a", 0), p("a", 0)
		b := p("b", 100)
		e.wantClaim("none", e.claimUnder("w", 5, capped(1)))
		got := []string{}
		r := e.get(hold)
		r.Worker = "w"
		for range 4 {
			e.finish(r, job.Completed, job.Done)
			runs := e.claimUnder("w", 5, capped(1))
			if len(runs) != 1 {
				e.Fatalf("claimed %d, want 1", len(runs))
			}
			r = runs[0]
			got = append(got, r.ID)
		}
		if want := []string{a2, b, a3, a1}; !slices.Equal(got, want) {
			e.Fatalf("went in the order %v, want %v", got, want)
		}
	}},
	// (F16) A run that does not run holds nothing, however it stopped.
	{"whatever ends an attempt frees its slot", func(e *env) {
		e.register("other")
		for _, end := range []struct {
			name string
			do   func(r job.Run)
		}{
			{"completed", func(r job.Run) { e.finish(r, job.Completed, job.Done) }},
			{"retried", func(r job.Run) {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Delayed, Delay: time.Hour})
			}},
			{"suspended", func(r job.Run) {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended,
					Step: &store.StepParams{Name: "nap", Kind: job.KindSleep, Status: job.StepSleeping, Sleep: time.Hour}})
			}},
			{"dead", func(r job.Run) { e.finish(r, job.DeadLettered, job.Dead) }},
			{"shed", func(r job.Run) {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Shed, To: job.Delayed, Delay: time.Hour})
			}},
			{"cancelled", func(r job.Run) {
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID}); err != nil {
					e.Fatal(err)
				}
			}},
			{"deregistered", func(r job.Run) {
				e.deregister(r.Worker)
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID}); err != nil {
					e.Fatal(err)
				}
			}},
			{"lost with its worker", func(r job.Run) {
				e.db.Advance(lease)
				e.register("other " + r.ID)
				e.reclaim()
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID}); err != nil {
					e.Fatal(err)
				}
			}},
			{"cancelled, to be undone", func(r job.Run) {
				e.book(r)
				e.cancel(store.CancelParams{ID: r.ID})
			}},
		} {
			worker := "w " + end.name
			e.register(worker)
			a, b := e.addKeyed(end.name, store.EnqueueParams{}), e.addKeyed(end.name, store.EnqueueParams{})
			runs := e.claimUnder(worker, 5, keyed(false))
			e.wantClaim(end.name+", before", runs, a)
			end.do(runs[0])
			next := "next " + end.name
			e.register(next)
			runs = e.claimUnder(next, 5, keyed(false))
			e.wantClaim(end.name+", after", runs, b)
			e.finish(runs[0], job.Completed, job.Done)
		}
	}},
	// (F6) Until its lease lapses a dead worker's run keeps its slot.
	{"a lapsed worker's slot is free when its run is reclaimed", func(e *env) {
		e.register("w1")
		all := e.addGated(2)
		e.wantClaim("one", e.claimUnder("w1", 5, capped(1)), all[0])
		e.db.Advance(lease)
		e.register("w2")
		e.wantClaim("not before", e.claimUnder("w2", 5, capped(1)))
		e.reclaim()
		e.wantClaim("then one, and the other is due later now", e.claimUnder("w2", 5, capped(1)), all[1])
	}},
	// (F2)
	{"a key of one job is not another's", func(e *env) {
		e.register("w")
		l := &limit.Queue{Jobs: map[string]limit.Job{"a": {Concurrency: 1, Keyed: true}, "a:b": {Concurrency: 1, Keyed: true}}}
		one := e.add(store.EnqueueParams{Job: "a", Gate: limit.KeyGate("a", "b:c")})
		two := e.add(store.EnqueueParams{Job: "a:b", Gate: limit.KeyGate("a:b", "c")})
		e.wantClaim("both", e.claimUnder("w", 5, l), one, two)
	}},
	// (F12)
	{"a key that does not wait names who holds it", func(e *env) {
		e.register("w")
		a, b := e.addKeyed("k", store.EnqueueParams{}), e.addKeyed("k", store.EnqueueParams{})
		free := e.addKeyed("l", store.EnqueueParams{})
		res := e.claimAll("w", store.QueueLimit{Queue: queueA, Limit: 5, Limits: keyed(true)})
		e.wantClaim("all are handed out", res.Runs, a, b, free)
		if len(res.Busy) != 1 || res.Busy[b] != a {
			e.Fatalf("busy is %v, want run %s held by %s", res.Busy, b, a)
		}
		for _, r := range res.Runs {
			if r.ID == b {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Refused, To: job.Failed, Error: &job.Failure{Code: job.CodeKeyBusy}})
			}
		}
		if r := e.wantState(b, job.Failed); r.Attempt != 0 || r.Error.Code != job.CodeKeyBusy {
			e.Fatalf("refused run %+v", r)
		}
		c := e.addKeyed("k", store.EnqueueParams{})
		if res := e.claimAll("w", store.QueueLimit{Queue: queueA, Limit: 5, Limits: keyed(true)}); res.Busy[c] != a {
			e.Fatalf("a refused run holds its key: %v", res.Busy)
		}
	}},
	// (F13)
	{"a run's own lapsed claim does not refuse its retry", func(e *env) {
		e.register("w1")
		a := e.addKeyed("k", store.EnqueueParams{})
		e.wantClaim("first", e.claimUnder("w1", 5, keyed(true)), a)
		e.db.Advance(lease)
		e.register("w2")
		res := e.claimAll("w2", store.QueueLimit{Queue: queueA, Limit: 5, Limits: keyed(true)})
		if len(res.Runs)+len(res.Busy) != 0 {
			e.Fatalf("before the reclaim: %+v", res)
		}
		e.reclaim()
		res = e.claimAll("w2", store.QueueLimit{Queue: queueA, Limit: 5, Limits: keyed(true)})
		e.wantClaim("the retry", res.Runs, a)
		if len(res.Busy) != 0 {
			e.Fatalf("it was refused: %v", res.Busy)
		}
	}},
	// (F13)
	{"a run that has begun is not refused for its key", func(e *env) {
		e.register("w")
		l := store.QueueLimit{Queue: queueA, Limit: 5, Limits: keyed(true)}
		a := e.addKeyed("k", store.EnqueueParams{})
		first := e.claimAll("w", l).Runs
		e.wantClaim("first", first, a)
		e.settle(store.SettleParams{Ref: refOf(first[0]), Outcome: job.Slept, To: job.Suspended,
			Step: &store.StepParams{Name: "nap", Kind: job.KindSleep, Status: job.StepSleeping, Sleep: 10 * time.Second}})
		b := e.addKeyed("k", store.EnqueueParams{})
		second := e.claimAll("w", l).Runs
		e.wantClaim("while it sleeps", second, b)
		e.db.Advance(10 * time.Second)
		if res := e.claimAll("w", l); len(res.Runs)+len(res.Busy) != 0 {
			e.Fatalf("beside the key's holder: %+v", res)
		}
		e.finish(second[0], job.Completed, job.Done)
		e.wantClaim("its turn", e.claimAll("w", l).Runs, a)
	}},
	{"a limit that is new holds runs that were enqueued before it", func(e *env) {
		e.register("w")
		for range 30 {
			e.add(store.EnqueueParams{})
		}
		if n := len(e.claimUnder("w", 10, capped(3))); n != 3 {
			e.Fatalf("claimed %d, want 3", n)
		}
	}},
	{"a key that is new is shared by the runs that were enqueued before it", func(e *env) {
		e.register("w")
		for range 30 {
			e.add(store.EnqueueParams{})
		}
		key := e.addKeyed("k", store.EnqueueParams{})
		if got := e.claimUnder("w", 10, keyed(false)); len(got) != 2 || !slices.Contains(ids(got), key) {
			e.Fatalf("claimed %v, want one of those and that of the key", ids(got))
		}
	}},
	{"a limit that is raised or gone lets what waits go", func(e *env) {
		e.register("w")
		all := e.addGated(6)
		first := e.claimUnder("w", 10, capped(1))
		e.wantClaim("one", first, all[0])
		e.finish(first[0], job.Completed, job.Done)
		e.wantClaim("three", e.claimUnder("w", 10, capped(3)), all[1], all[2], all[3])
		e.finish(e.runOf(all[1]), job.Completed, job.Done)
		e.wantClaim("all", e.claimUnder("w", 10, nil), all[4], all[5])
	}},
	{"a limit that is raised counts when claims are told to look", func(e *env) {
		e.register("w")
		all := e.addGated(4)
		e.wantClaim("one", e.claimUnder("w", 10, capped(1)), all[0])
		res := e.claimAll("w", store.QueueLimit{Queue: queueA, Limit: 10, Limits: capped(3), Recheck: true})
		e.wantClaim("two more", res.Runs, all[1], all[2])
	}},
	{"what waits behind a gate can be cancelled, found and listed", func(e *env) {
		e.register("w")
		all := e.addGated(3)
		e.wantClaim("one", e.claimUnder("w", 10, capped(1)), all[0])
		r := e.wantState(all[1], job.Ready)
		if r.Blocked != limit.JobGate(jobA) || r.Gate != limit.JobGate(jobA) {
			e.Fatalf("blocked at %q under %q", r.Blocked, r.Gate)
		}
		if got := e.list(store.ListParams{State: job.Ready}); len(got) != 2 {
			e.Fatalf("listed %v", ids(got))
		}
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: all[1]}); err != nil {
			e.Fatal(err)
		}
		e.finish(e.runOf(all[0]), job.Completed, job.Done)
		e.wantClaim("the other", e.claimUnder("w", 10, capped(1)), all[2])
		if r := e.get(all[2]); r.Blocked != "" {
			e.Fatalf("a running run is blocked at %q", r.Blocked)
		}
		held := e.addGated(1)[0]
		dup := e.add(store.EnqueueParams{Gate: limit.JobGate(jobA), Key: "k"})
		if res := e.enqueue(store.EnqueueParams{Gate: limit.JobGate(jobA), Key: "k"})[0]; res.ID != dup || res.State != job.Ready {
			e.Fatalf("deduped into %+v", res)
		}
		_ = held
	}},
	{"a requeued run is under its limit again", func(e *env) {
		e.register("w")
		a := e.addKeyed("k", store.EnqueueParams{})
		r := e.claimUnder("w", 5, keyed(false))[0]
		e.finish(r, job.DeadLettered, job.Dead)
		b := e.addKeyed("k", store.EnqueueParams{})
		e.wantClaim("the other", e.claimUnder("w", 5, keyed(false)), b)
		if _, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: a}); err != nil {
			e.Fatal(err)
		}
		e.wantClaim("none beside it", e.claimUnder("w", 5, keyed(false)))
		if r := e.get(a); r.Gate != limit.KeyGate(jobA, "k") {
			e.Fatalf("its gate is %q", r.Gate)
		}
	}},
	{"no more of a tenant run in a queue than its limit", func(e *env) {
		e.register("w")
		l := &limit.Queue{PerTenant: 2}
		var a, b []string
		for range 5 {
			a = append(a, e.add(store.EnqueueParams{Tenant: "a"}))
			b = append(b, e.add(store.EnqueueParams{Tenant: "b"}))
		}
		first := e.claimUnder("w", 10, l)
		e.wantClaim("two of each", first, a[0], a[1], b[0], b[1])
		e.wantClaim("no more", e.claimUnder("w", 10, l))
		for _, r := range first {
			if r.ID == a[0] {
				e.finish(r, job.Completed, job.Done)
			}
		}
		e.wantClaim("one for the one that ended", e.claimUnder("w", 10, l), a[2])
	}},
	{"a tenant at its limit does not keep its turn at a gate", func(e *env) {
		e.register("w")
		l := capped(2)
		l.PerTenant = 1
		p := func(tenant string) string {
			return e.add(store.EnqueueParams{Gate: limit.JobGate(jobA), Tenant: tenant})
		}
		a1, b1 := p("a"), p("b")
		first := e.claimUnder("w", 10, l)
		e.wantClaim("one of each", first, a1, b1)
		p("a")
		b2 := p("b")
		c := p("c")
		e.wantClaim("none", e.claimUnder("w", 10, l))
		e.finish(e.runOf(b1), job.Completed, job.Done)
		got := e.claimUnder("w", 10, l)
		if len(got) != 1 || got[0].ID != b2 && got[0].ID != c {
			e.Fatalf("claimed %v while tenant a has its one", ids(got))
		}
	}},
	{"what a process runs of a tenant is bounded by what it says it runs", func(e *env) {
		e.register("w")
		for range 5 {
			e.add(store.EnqueueParams{Tenant: "a"})
		}
		other := e.add(store.EnqueueParams{Tenant: "b"})
		l := &limit.Queue{TenantHere: 3, Here: map[string]int{"a": 2, "b": 0}}
		runs := e.claimUnder("w", 10, l)
		if len(runs) < 2 || !slices.Contains(ids(runs), other) {
			e.Fatalf("claimed %v", ids(runs))
		}
	}},
	// Exact, whoever claims, and kept by the database.
	{"a queue's rate is kept over all claims", func(e *env) {
		e.register("w1", "w2")
		l := &limit.Queue{Rate: limit.Rate{Limit: 10, Per: 10 * time.Second}}
		for range 40 {
			e.add(store.EnqueueParams{})
		}
		res := e.claimAll("w1", store.QueueLimit{Queue: queueA, Limit: 7, Limits: l})
		if len(res.Runs) != 7 {
			e.Fatalf("claimed %d, want 7", len(res.Runs))
		}
		now := e.now()
		got := len(e.claimUnder("w2", 20, l))
		if allowed := 3 + int(e.now().Sub(now)/time.Second); got < 3 || got > allowed+1 {
			e.Fatalf("claimed %d more, want what is left of 10", got)
		}
		res = e.claimAll("w2", store.QueueLimit{Queue: queueA, Limit: 20, Limits: l})
		if len(res.Runs) != 0 || res.NextDue.IsZero() || res.NextDue.Sub(res.Now) > time.Second {
			e.Fatalf("claimed %d, due again in %s, want the next in a second", len(res.Runs), res.NextDue.Sub(res.Now))
		}
		e.db.Advance(4 * time.Second)
		if got := len(e.claimUnder("w1", 20, l)); got < 4 || got > 5 {
			e.Fatalf("claimed %d after 4 s, want 4", got)
		}
		if n := e.ready(queueA); n < 24 {
			e.Fatalf("%d are counted as ready", n)
		}
	}},
	// Whoever purges may have any clock: what is owed is known by the database's. (DB12)
	{"a purge forgets no rate that is not paid for", func(e *env) {
		e.db.Advance(-20 * 365 * 24 * time.Hour)
		e.register("w")
		l := &limit.Queue{Rate: limit.Rate{Limit: 2, Per: time.Hour}}
		for range 6 {
			e.add(store.EnqueueParams{})
		}
		if got := len(e.claimUnder("w", 6, l)); got != 2 {
			e.Fatalf("claimed %d of a rate of 2 an hour", got)
		}
		if _, err := e.db.Purge(e.ctx, 100); err != nil {
			e.Fatal(err)
		}
		if got := len(e.claimUnder("w", 6, l)); got != 0 {
			e.Fatalf("claimed %d more after a purge", got)
		}
		e.db.Advance(2 * time.Hour)
		if _, err := e.db.Purge(e.ctx, 100); err != nil {
			e.Fatal(err)
		}
		e.register("w2")
		if got := len(e.claimUnder("w2", 6, l)); got != 2 {
			e.Fatalf("claimed %d of a rate that was paid for", got)
		}
	}},
	{"a rate by tenant is each tenant's own", func(e *env) {
		e.register("w")
		l := &limit.Queue{Rate: limit.Rate{Limit: 2, Per: 20 * time.Second}, ByTenant: true}
		for i := range 5 {
			e.add(store.EnqueueParams{Tenant: "a"})
			if i < 3 {
				e.add(store.EnqueueParams{Tenant: "b"})
			}
		}
		per := map[string]int{}
		for _, r := range e.claimUnder("w", 20, l) {
			per[r.Tenant]++
		}
		if per["a"] != 2 || per["b"] != 2 {
			e.Fatalf("claimed %v, want 2 of each", per)
		}
		e.db.Advance(10 * time.Second)
		if n := len(e.claimUnder("w", 20, l)); n != 2 {
			e.Fatalf("claimed %d after 10 s, want one of each", n)
		}
	}},
	{"a job's rate does not hold up others", func(e *env) {
		e.register("w")
		l := &limit.Queue{Jobs: map[string]limit.Job{jobA: {Rate: limit.Rate{Limit: 2, Per: 20 * time.Second}}}}
		for range 20 {
			e.add(store.EnqueueParams{})
		}
		free := e.add(store.EnqueueParams{Job: "free"})
		got := e.claimUnder("w", 10, l)
		if len(got) != 3 || !slices.Contains(ids(got), free) {
			e.Fatalf("claimed %d, want 2 and the free one", len(got))
		}
		res := e.claimAll("w", store.QueueLimit{Queue: queueA, Limit: 10, Limits: l})
		if len(res.Runs) != 0 || res.NextDue.IsZero() || res.NextDue.Sub(res.Now) > 10*time.Second {
			e.Fatalf("claimed %d, due again in %s", len(res.Runs), res.NextDue.Sub(res.Now))
		}
		e.db.Advance(10 * time.Second)
		if n := len(e.claimUnder("w", 10, l)); n != 1 {
			e.Fatalf("claimed %d after 10 s, want 1", n)
		}
	}},
	{"a gate that is open for nobody hides no rate that is due later", func(e *env) {
		e.register("w")
		a := store.EnqueueParams{Tenant: "a", Gate: limit.JobGate(jobA)}
		first, second := e.add(a), e.add(a)
		e.wantClaim("one", e.claimUnder("w", 5, capped(1)), first)
		e.finish(e.runOf(first), job.Completed, job.Done) // the gate is open
		l := capped(1)
		l.PerTenant, l.Jobs["rated"] = 1, limit.Job{Rate: limit.Rate{Limit: 1, Per: 20 * time.Second}}
		free := e.add(store.EnqueueParams{Tenant: "a", Job: "free", Priority: -1})
		e.wantClaim("the tenant's one", e.claimUnder("w", 1, l), free)
		b := e.add(store.EnqueueParams{Tenant: "b", Job: "rated", Priority: -1})
		c := e.add(store.EnqueueParams{Tenant: "c", Job: "rated"})
		e.wantClaim("one start", e.claimUnder("w", 1, l), b)
		for range 2 {
			res := e.claimAll("w", store.QueueLimit{Queue: queueA, Limit: 5, Limits: l})
			if len(res.Runs) != 0 {
				e.Fatalf("claimed %v beside %s and %s", ids(res.Runs), second, c)
			}
			if due := res.NextDue.Sub(res.Now); res.NextDue.IsZero() || due > 20*time.Second {
				e.Fatalf("due again at %s, now %s; a start is allowed in 20 s", res.NextDue, res.Now)
			}
		}
	}},
	// (L12)
	{"what a gate holds up spends no rate", func(e *env) {
		e.register("w")
		l := &limit.Queue{Jobs: map[string]limit.Job{jobA: {Concurrency: 1}}, Rate: limit.Rate{Limit: 3, Per: time.Hour}}
		all := e.addGated(3)
		r := e.claimUnder("w", 5, l)
		e.wantClaim("one", r, all[0])
		for range 5 {
			e.wantClaim("none", e.claimUnder("w", 5, l))
		}
		for i := range 2 {
			e.finish(r[0], job.Completed, job.Done)
			r = e.claimUnder("w", 5, l)
			e.wantClaim("the next", r, all[i+1])
		}
	}},
	{"a promoted run goes through its gate", func(e *env) {
		e.register("w")
		a := e.addKeyed("k", store.EnqueueParams{})
		b := e.addKeyed("k", store.EnqueueParams{Delay: 5 * time.Second})
		runs := e.claimUnder("w", 5, keyed(false))
		e.wantClaim("the first", runs, a)
		e.db.Advance(6 * time.Second)
		e.wantClaim("not the other", e.claimUnder("w", 5, keyed(false)))
		e.finish(runs[0], job.Completed, job.Done)
		e.wantClaim("then the other", e.claimUnder("w", 5, keyed(false)), b)
	}},
	{"runs of many keys, each busy, are passed over", func(e *env) {
		e.register("w")
		var first, second []string
		for i := range 300 {
			first = append(first, e.addKeyed(fmt.Sprint(i), store.EnqueueParams{}))
			second = append(second, e.addKeyed(fmt.Sprint(i), store.EnqueueParams{}))
		}
		runs := e.claimUnder("w", 1000, keyed(false))
		e.wantClaim("one of each", runs, first...)
		for _, r := range runs {
			e.finish(r, job.Completed, job.Done)
		}
		e.wantClaim("the others", e.claimUnder("w", 1000, keyed(false)), second...)
	}},
}

// runOf is a run with its worker, as a claim answers it.
func (e *env) runOf(id string) job.Run {
	e.Helper()
	return e.wantState(id, job.Running)
}
