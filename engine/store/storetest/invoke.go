package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// queueC is where children wait, out of their parents' way.
const queueC = "children"

// children are n children of r; change, if not nil, is made to each.
func (e *env) children(r job.Run, n int, change func(i int, c *store.ChildParams)) []store.ChildParams {
	out := make([]store.ChildParams, n)
	for i := range out {
		out[i] = store.ChildParams{
			Name: fmt.Sprint("invoke:", i+1),
			Run:  e.params(store.EnqueueParams{Queue: queueC, Job: "child", Parent: r.ID}),
		}
		if change != nil {
			change(i, &out[i])
		}
	}
	return out
}

// invoke starts children and parks the run until at most that many are live.
func (e *env) invoke(r job.Run, most int, start ...store.ChildParams) store.SettleResult {
	e.Helper()
	res := e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended, Invoke: &store.InvokeParams{Start: start, Most: most}})
	if !res.Landed {
		e.Fatalf("the invoke of run %s did not land", r.ID)
	}
	return res
}

// claimChild claims one child, which must be there.
func (e *env) claimChild(worker string) job.Run {
	e.Helper()
	runs := e.claimAll(worker, store.QueueLimit{Queue: queueC, Limit: 1}).Runs
	if len(runs) != 1 {
		e.Fatalf("claimed %d children", len(runs))
	}
	return runs[0]
}

// endChild settles a child as a worker does.
func (e *env) endChild(r job.Run, outcome job.Outcome, to job.State, output string, f *job.Failure) {
	e.Helper()
	res := e.settle(store.SettleParams{Ref: refOf(r), Outcome: outcome, To: to, Output: []byte(output), Error: f, Parent: r.Parent, Retention: time.Minute})
	if !res.Landed {
		e.Fatalf("the end of child %s did not land", r.ID)
	}
}

var invokeTests = []test{
	{"the depth of a run is counted along those that wait for it", func(e *env) {
		depth := func(id string, most, want int) {
			e.Helper()
			if n, err := e.db.InvokeDepth(e.ctx, id, most); n != want || err != nil {
				e.Errorf("depth of %s counted to %d is %d, %v, want %d", id, most, n, err, want)
			}
		}
		chain := []job.Run{e.start("w", store.EnqueueParams{})}
		for range 3 {
			// That one is abandoned changes nothing while its parent waits.
			e.invoke(chain[len(chain)-1], 0, e.children(chain[len(chain)-1], 1, func(_ int, c *store.ChildParams) { c.Abandon = len(chain) == 2 })...)
			chain = append(chain, e.claimChild("w"))
		}
		e.enqueue(e.params(store.EnqueueParams{Queue: queueC, Job: "child", Parent: chain[3].ID}))
		enqueued := e.claimChild("w") // nobody waits for it
		for i, r := range chain {
			depth(r.ID, 100, i)
			depth(r.ID, i, i)
		}
		depth(chain[3].ID, 2, 2)
		depth(chain[3].ID, 0, 0)
		depth(enqueued.ID, 100, 0)
		depth("01890a5d-0000-7000-8000-000000000000", 100, 0)
		depth("none", 100, 0)
		e.endChild(chain[3], job.Completed, job.Done, `1`, nil)
		depth(chain[3].ID, 100, 0)
		depth(chain[2].ID, 100, 2)
	}},
	{"a child that takes too long fails its record and is cancelled, but for one to be abandoned", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		start := e.children(parent, 4, func(i int, c *store.ChildParams) {
			c.Timeout = []time.Duration{10 * time.Second, 10 * time.Second, 20 * time.Second, 0}[i]
			c.Abandon, c.Retention = i == 1, time.Minute
		})
		timed := func(r job.Run, start ...store.ChildParams) store.SettleResult {
			e.Helper()
			return e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended, Invoke: &store.InvokeParams{Start: start, Most: 2, Timed: true}})
		}
		e.wantTime("due", timed(parent, start...).RunAt, e.now().Add(10*time.Second))
		e.wantState(parent.ID, job.Suspended)
		held := e.claimChild("w") // the first runs, and will be told
		e.db.Advance(10 * time.Second)
		e.renew("w")
		again := e.claimOne("w")
		if again.ID != parent.ID {
			e.Fatalf("claimed %+v", again)
		}
		e.wantTime("ready since", timed(again).RunAt, e.now())
		e.wantState(parent.ID, job.Ready)
		for i, state := range []job.State{job.Cancelled, job.Ready, job.Ready, job.Ready} {
			e.wantState(start[i].Run.ID, state)
			rec := e.record(parent.ID, start[i].Name)
			if late := i < 2; late != (rec.Status == job.StepFailed && rec.Error.Code == job.CodeChildTimeout) || !late && rec.Status != job.StepWaiting {
				e.Errorf("record %d is %s, %+v", i, rec.Status, rec.Error)
			}
		}
		if res := e.settle(store.SettleParams{Ref: refOf(held), Outcome: job.Completed, To: job.Done, Parent: parent.ID}); res.Landed {
			e.Error("a child that was cancelled settled")
		}
		// The abandoned one ends for itself, and the third in time.
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "1", nil)
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "2", nil)
		e.wantRecord(parent.ID, start[1].Name, job.StepFailed, "")
		e.wantRecord(parent.ID, start[2].Name, job.StepCompleted, "2")
		e.db.Advance(20 * time.Second)
		e.renew("w")
		last := e.claimOne("w")
		res := e.settle(store.SettleParams{Ref: refOf(last), Outcome: job.Slept, To: job.Suspended, Invoke: &store.InvokeParams{Timed: true}})
		if res.RunAt.Before(e.now().Add(store.InvokeHorizon / 2)) {
			e.Errorf("with a child that is waited for as long as it takes, it is due at %v", res.RunAt)
		}
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "3", nil)
		e.wantState(parent.ID, job.Ready)
	}},
	{"the end of a child makes its parent ready, with its output", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		start := e.children(parent, 1, nil)
		parked := e.invoke(parent, 0, start...)
		if parked.RunAt.Before(e.now().Add(store.InvokeHorizon / 2)) {
			e.Errorf("the parent is due at %v", parked.RunAt)
		}
		rec := e.wantRecord(parent.ID, "invoke:1", job.StepWaiting, "")
		if rec.Child != start[0].Run.ID || rec.Kind != job.KindInvoke {
			e.Fatalf("record %+v", rec)
		}
		if got := e.wantState(parent.ID, job.Suspended); got.Attempt != 0 || got.Steps != 1 {
			e.Errorf("parent %+v", got)
		}
		child := e.claimChild("w")
		if child.ID != rec.Child || child.Parent != parent.ID {
			e.Fatalf("child %+v", child)
		}
		e.db.Advance(time.Second)
		at := e.now()
		e.endChild(child, job.Completed, job.Done, `{"n":1}`, nil)
		e.wantTime("ready since", e.wantState(parent.ID, job.Ready).RunAt, at)
		rec = e.wantRecord(parent.ID, "invoke:1", job.StepCompleted, `{"n":1}`)
		e.wantTime("recorded", rec.FinishedAt, at)
		// The child's row is not needed any more.
		e.db.Advance(2 * time.Minute)
		if n, err := e.db.Purge(e.ctx, 10); n != 1 || err != nil {
			e.Fatalf("purged %d, %v", n, err)
		}
		e.wantRecord(parent.ID, "invoke:1", job.StepCompleted, `{"n":1}`)
	}},
	{"a child that does not end well fails the record", func(e *env) {
		e.register("w", "dying")
		own := job.Failure{Code: "X_OWN", Message: "own", Fix: "fix", Stack: "stack"}
		for name, c := range map[string]struct {
			end  func(child job.Run)
			want job.Failure
		}{
			"dead":           {func(c job.Run) { e.endChild(c, job.DeadLettered, job.Dead, "", &own) }, own},
			"failed":         {func(c job.Run) { e.endChild(c, job.Dropped, job.Failed, "", &own) }, own},
			"without reason": {func(c job.Run) { e.endChild(c, job.DeadLettered, job.Dead, "", nil) }, *store.ChildEnded(job.Dead)},
			"cancelled": {func(c job.Run) {
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: c.ID}); err != nil {
					e.Fatal(err)
				}
			}, *store.ChildEnded(job.Cancelled)},
			"cancelled with a reason": {func(c job.Run) {
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: c.ID, Reason: "why"}); err != nil {
					e.Fatal(err)
				}
			}, job.Failure{Code: job.CodeCancelled, Message: "why"}},
		} {
			e.add(store.EnqueueParams{})
			parent := e.claimOne("w")
			e.invoke(parent, 0, e.children(parent, 1, nil)...)
			c.end(e.claimChild("w"))
			if got := e.get(parent.ID).State; got != job.Ready {
				e.Fatalf("%s: the parent is %s", name, got)
			}
			if rec := e.wantRecord(parent.ID, "invoke:1", job.StepFailed, ""); rec.Error != c.want {
				e.Errorf("%s: error %+v, want %+v", name, rec.Error, c.want)
			}
			e.finish(e.claimOne("w"), job.Completed, job.Done)
		}
	}},
	{"a child that is buried fails the record", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		e.invoke(parent, 0, e.children(parent, 1, func(_ int, c *store.ChildParams) { c.Run.MaxAttempts = 1 })...)
		e.register("dying")
		e.claimChild("dying")
		e.db.Advance(2 * lease)
		if res, err := e.db.Reclaim(e.ctx, store.ReclaimParams{}); err != nil || len(res.Buried) != 1 {
			e.Fatalf("%+v, %v", res, err)
		}
		e.wantState(parent.ID, job.Ready)
		if rec := e.wantRecord(parent.ID, "invoke:1", job.StepFailed, ""); rec.Error.Code != job.CodeMaxAttempts {
			e.Errorf("error %+v", rec.Error)
		}
	}},
	{"a retry of a child tells its parent nothing yet", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		e.invoke(parent, 0, e.children(parent, 1, nil)...)
		e.finish(e.claimChild("w"), job.Retried, job.Ready)
		e.wantState(parent.ID, job.Suspended)
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "1", nil)
		e.wantState(parent.ID, job.Ready)
	}},
	{"a parent is ready once few enough of its children are live", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		e.invoke(parent, 2, e.children(parent, 4, nil)...)
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "1", nil)
		e.wantState(parent.ID, job.Suspended)
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "2", nil)
		e.wantState(parent.ID, job.Ready)
		// It wakes once; while it runs, another ends.
		again := e.claimOne("w")
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "3", nil)
		e.invoke(again, 0)
		e.wantState(parent.ID, job.Suspended)
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "4", nil)
		e.wantState(parent.ID, job.Ready)
		// None is live: it does not wait at all.
		if res := e.invoke(e.claimOne("w"), 0); res.RunAt.After(e.now()) {
			e.Errorf("due at %v", res.RunAt)
		}
		e.wantState(parent.ID, job.Ready)
	}},
	{"a child whose key is held is not started", func(e *env) {
		holder := e.add(store.EnqueueParams{Job: "child", Queue: "elsewhere", Key: "k"})
		parent := e.start("w", store.EnqueueParams{})
		start := e.children(parent, 2, func(_ int, c *store.ChildParams) { c.Run.Key = "k" })
		start[1].Run.Key = "other"
		e.invoke(parent, 0, start...)
		rec := e.wantRecord(parent.ID, "invoke:1", job.StepFailed, "")
		if rec.Error != *store.ChildHeld("child", holder) || rec.Child != "" {
			e.Errorf("record %+v", rec)
		}
		e.wantRecord(parent.ID, "invoke:2", job.StepWaiting, "")
		e.wantState(parent.ID, job.Suspended)
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "1", nil)
		e.wantState(parent.ID, job.Ready)
		// Alone, it leaves nothing to wait for.
		again := e.claimOne("w")
		start[0].Name, start[0].Run.ID = "invoke:3", uid(900)
		e.invoke(again, 0, start[0])
		e.wantState(parent.ID, job.Ready)
	}},
	{"a stale claim starts no child", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		stale := parent
		stale.Claims++
		res := e.settle(store.SettleParams{Ref: refOf(stale), Outcome: job.Slept, To: job.Suspended,
			Invoke: &store.InvokeParams{Start: e.children(parent, 1, nil)}})
		if res.Landed {
			e.Error("it landed")
		}
		e.wantState(parent.ID, job.Running)
		if runs := e.claimAll("w", store.QueueLimit{Queue: queueC, Limit: 1}).Runs; len(runs) != 0 || len(e.steps(parent.ID)) != 0 {
			e.Errorf("children %+v, steps %+v", runs, e.steps(parent.ID))
		}
	}},
	{"a run that was only enqueued by another tells it nothing", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		e.saveStep(store.StepParams{Ref: refOf(parent), Name: "s", Enqueue: []store.EnqueueParams{e.params(store.EnqueueParams{Queue: queueC, Parent: parent.ID})}})
		e.park(parent, waitFor("w", time.Hour, now))
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "1", nil)
		e.wantState(parent.ID, job.Suspended)
	}},
	{"a cancelled parent takes its children along, but for those it abandons", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		e.invoke(parent, 0, e.children(parent, 3, func(i int, c *store.ChildParams) {
			c.Abandon = i == 1
			c.Retention = time.Minute
		})...)
		first := e.claimChild("w")
		e.invoke(first, 0, store.ChildParams{Name: "invoke:1", Run: e.params(store.EnqueueParams{Queue: "deep", Parent: first.ID})})
		grandchild := e.record(first.ID, "invoke:1").Child
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: parent.ID, Reason: "stop"}); err != nil {
			e.Fatal(err)
		}
		recs := e.steps(parent.ID)
		got := e.wantState(first.ID, job.Cancelled)
		if got.Error != *store.ParentEnded(parent.ID) || got.ExpiresAt.IsZero() {
			e.Errorf("child %+v", got)
		}
		if gc := e.wantState(grandchild, job.Cancelled); gc.Error != *store.ParentEnded(first.ID) || !gc.ExpiresAt.IsZero() {
			e.Errorf("grandchild %+v", gc)
		}
		e.wantState(recs[1].Child, job.Ready)
		e.wantState(recs[2].Child, job.Cancelled)
		for i, rec := range recs {
			if rec.Status != job.StepRetrying || rec.Error != *store.ChildLeft(i == 1) {
				e.Errorf("record %+v", rec)
			}
		}
		// What goes on has nobody to tell.
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "1", nil)
		e.wantState(parent.ID, job.Cancelled)
		// The parent begins anew.
		if _, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: parent.ID}); err != nil {
			e.Fatal(err)
		}
		again := e.claimOne("w")
		e.invoke(again, 0, e.children(again, 1, nil)...)
		rec := e.wantRecord(parent.ID, "invoke:1", job.StepWaiting, "")
		if rec.Child == recs[0].Child || rec.Error != (job.Failure{}) {
			e.Errorf("record %+v", rec)
		}
		e.endChild(e.claimChild("w"), job.Completed, job.Done, "2", nil)
		e.wantRecord(parent.ID, "invoke:1", job.StepCompleted, "2")
		e.wantState(parent.ID, job.Ready)
	}},
	{"so does one that ends otherwise", func(e *env) {
		e.register("w", "dying")
		for name, end := range map[string]func(r job.Run){
			"dead": func(r job.Run) {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.DeadLettered, To: job.Dead, Invoked: true, Error: &job.Failure{Message: "no"}})
			},
			"done": func(r job.Run) {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Invoked: true, Output: []byte("1")})
			},
			"buried": func(job.Run) {
				e.db.Advance(2 * lease)
				if res, err := e.db.Reclaim(e.ctx, store.ReclaimParams{}); err != nil || len(res.Buried) != 1 {
					e.Fatalf("%+v, %v", res, err)
				}
			},
		} {
			worker := "live " + name
			e.register(worker)
			e.add(store.EnqueueParams{MaxAttempts: 1})
			parent := e.claimOne(worker)
			e.invoke(parent, 1, e.children(parent, 2, nil)...)
			e.endChild(e.claimChild(worker), job.Completed, job.Done, "1", nil)
			end(e.claimOne(worker))
			if got := e.get(parent.ID).State; got.Live() {
				e.Fatalf("%s: the parent is %s", name, got)
			}
			left := e.record(parent.ID, "invoke:2")
			if got := e.get(left.Child).State; got != job.Cancelled || left.Status != job.StepRetrying {
				e.Errorf("%s: the child is %s, the record %s", name, got, left.Status)
			}
			e.wantRecord(parent.ID, "invoke:1", job.StepCompleted, "1")
		}
	}},
	{"a run that is deleted takes its children along, and tells its parent", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		e.invoke(parent, 0, e.children(parent, 1, nil)...)
		child := e.claimChild("w")
		e.invoke(child, 0, store.ChildParams{Name: "invoke:1", Run: e.params(store.EnqueueParams{Queue: "deep", Parent: child.ID})})
		grandchild := e.record(child.ID, "invoke:1").Child
		if got, err := e.db.Delete(e.ctx, store.DeleteParams{ID: child.ID}); err != nil || got.State != job.Suspended {
			e.Fatalf("deleted %+v, %v", got, err)
		}
		e.wantState(grandchild, job.Cancelled)
		e.wantState(parent.ID, job.Ready)
		if rec := e.wantRecord(parent.ID, "invoke:1", job.StepFailed, ""); rec.Error != *store.Deleted() {
			e.Errorf("record %+v", rec)
		}
	}},
	{"a child that is started in the commit which ends its parent's parent does not outlive them", func(e *env) {
		e.register("w")
		for _, parentFirst := range []bool{false, true} {
			e.add(store.EnqueueParams{})
			parent := e.claimOne("w")
			e.invoke(parent, 1, e.children(parent, 2, nil)...)
			e.endChild(e.claimChild("w"), job.Completed, job.Done, "1", nil)
			child, again := e.claimChild("w"), e.claimOne("w")
			grandchild := store.ChildParams{Name: "invoke:1", Run: e.params(store.EnqueueParams{Queue: "deep", Parent: child.ID})}
			batch := []store.SettleParams{
				{Ref: refOf(child), Outcome: job.Slept, To: job.Suspended, Invoke: &store.InvokeParams{Start: []store.ChildParams{grandchild}}},
				{Ref: refOf(again), Outcome: job.DeadLettered, To: job.Dead, Invoked: true, Error: &job.Failure{Message: "no"}},
			}
			if parentFirst {
				slices.Reverse(batch)
			}
			if _, err := e.db.Settle(e.ctx, batch); err != nil {
				e.Fatal(err)
			}
			e.wantState(parent.ID, job.Dead)
			e.wantState(child.ID, job.Cancelled)
			if r, err := e.db.Get(e.ctx, grandchild.Run.ID); err == nil && r.State != job.Cancelled {
				e.Errorf("the parent's settle first: %v; the grandchild is %s", parentFirst, r.State)
			}
		}
	}},
	{"a running child hears of its parent's end", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		e.invoke(parent, 0, e.children(parent, 1, nil)...)
		child := e.claimChild("w")
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: parent.ID}); err != nil {
			e.Fatal(err)
		}
		res, err := e.db.Renew(e.ctx, store.RenewParams{Worker: "w", Lease: lease, Held: []job.Ref{refOf(child)}})
		if err != nil || len(res.Lost) != 1 || res.Lost[0].State != job.Cancelled {
			e.Errorf("%+v, %v", res, err)
		}
	}},
	{"an invoke is refused where it makes no sense", func(e *env) {
		parent := e.start("w", store.EnqueueParams{})
		for _, p := range []store.SettleParams{
			{Ref: refOf(parent), Outcome: job.Retried, To: job.Ready, Invoke: &store.InvokeParams{}},
			{Ref: refOf(parent), Outcome: job.Slept, To: job.Suspended, Invoke: &store.InvokeParams{Most: -1}},
			{Ref: refOf(parent), Outcome: job.Slept, To: job.Suspended, Invoke: &store.InvokeParams{}, Step: waitFor("w", time.Hour, now)},
		} {
			_, err := e.db.Settle(e.ctx, []store.SettleParams{p})
			e.wantRefused(err, job.CodeInvalid)
		}
	}},
}
