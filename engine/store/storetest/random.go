package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Random compares a store with a model of its contract, op by op, for a number
// of random ops. The seed is printed with a failure and decides everything; two
// stores that pass the same seed answered the same.
//
// The database's clock must stand still between two Advances.
func Random(t *testing.T, open Factory, seed uint64, ops int) {
	e := newEnv(t, open)
	x := &random{env: e, m: newModel(), rand: rand.New(rand.NewPCG(seed, 0)), claims: map[string][]job.Ref{}}
	done := false
	defer func() {
		if !done {
			t.Logf("seed %d, after %d ops; the last was %s", seed, x.n, x.last)
		}
	}()
	for x.n = range ops {
		x.m.now = e.now()
		x.step()
		if x.n%200 == 0 {
			x.compareAll()
		}
	}
	x.compareAll()
	done = true
}

type random struct {
	*env
	m      *model
	rand   *rand.Rand
	n      int
	last   string
	claims map[string][]job.Ref // every claim of a run that was ever handed out
}

func pick[T any](x *random, of ...T) T { return of[x.rand.IntN(len(of))] }

// one in n
func (x *random) odds(n int) bool { return x.rand.IntN(n) == 0 }

func (x *random) anyRun() string {
	known := slices.Sorted(maps.Keys(x.m.runs))
	if len(known) == 0 || x.odds(50) {
		return uid(1 << 20) // nobody
	}
	return pick(x, known...)
}

func (x *random) anyWorker() string {
	known := slices.Sorted(maps.Keys(x.m.workers))
	if len(known) == 0 || x.odds(20) {
		return "nobody"
	}
	return pick(x, known...)
}

// anyRef is mostly a claim that holds, sometimes one that did.
func (x *random) anyRef() job.Ref {
	var running []string
	for id, r := range x.m.runs {
		if r.State == job.Running {
			running = append(running, id)
		}
	}
	slices.Sort(running)
	if len(running) > 0 && !x.odds(4) {
		r := x.m.runs[pick(x, running...)]
		return job.Ref{RunID: r.ID, Worker: r.Worker, Claim: r.Claims}
	}
	id := x.anyRun()
	if refs := x.claims[id]; len(refs) > 0 {
		return pick(x, refs...)
	}
	return job.Ref{RunID: id, Worker: x.anyWorker(), Claim: int64(x.rand.IntN(3))}
}

func (x *random) newRun() store.EnqueueParams {
	p := x.params(store.EnqueueParams{
		Job: pick(x, "a", "b"), Queue: pick(x, "q1", "q2"), Tenant: pick(x, "", "t1", "t2", "t3"), Key: pick(x, "", "", "k1", "k2"),
		Priority: pick(x, 0, 0, 0, -5, 5), MaxAttempts: 1 + x.rand.IntN(4), Input: fmt.Appendf(nil, `{"n":%d}`, x.n),
		Delay: pick(x, 0, 0, 0, 10*time.Second, 50*time.Second),
	})
	if x.odds(10) {
		p.Input = make([]byte, 3000)
	}
	if x.odds(20) {
		p.ID = x.anyRun()
	}
	return p
}

func (x *random) newRuns(limit int) []store.EnqueueParams {
	var out []store.EnqueueParams
	for range 1 + x.rand.IntN(limit) {
		out = append(out, x.newRun())
	}
	return out
}

func (x *random) step() {
	for _, op := range []struct {
		name   string
		weight int
		run    func()
	}{
		{"enqueue", 14, x.enqueueSome}, {"claim", 20, x.claimSome}, {"settle", 30, x.settleSome}, {"save step", 15, x.saveSome},
		{"renew", 6, x.renewSome}, {"register", 3, x.registerOne}, {"deregister", 1, x.deregisterOne}, {"reclaim", 3, x.reclaimSome},
		{"cancel", 2, x.cancelOne}, {"requeue", 3, x.requeueOne}, {"purge", 1, x.purgeSome}, {"advance", 2, x.advance},
	} {
		op.weight -= x.rand.IntN(101)
		if op.weight >= 0 {
			x.last = op.name
			op.run()
		}
	}
}

func (x *random) same(want, got any) {
	x.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		x.Fatalf("%s (-model +store):\n%s", x.last, d)
	}
}

// seen is how a state compares: a store may make a run ready when its time has
// come, or leave that to its claim.
func (x *random) seen(id string, state job.State) job.State {
	if r := x.m.runs[id]; r != nil && (state == job.Delayed || state == job.Suspended) && x.m.due(r) {
		return job.Ready
	}
	return state
}

func (x *random) seenResults(results []store.EnqueueResult) []store.EnqueueResult {
	for i := range results {
		results[i].State = x.seen(results[i].ID, results[i].State)
	}
	return results
}

func (x *random) seenSteps(results []store.StepResult) []store.StepResult {
	for i := range results {
		x.seenResults(results[i].Enqueued)
	}
	return results
}

func (x *random) seenLost(res store.RenewResult) store.RenewResult {
	for i := range res.Lost {
		res.Lost[i].State = x.seen(res.Lost[i].Ref.RunID, res.Lost[i].State)
	}
	return res
}

func (x *random) seenRun(r job.Run) job.Run {
	r.State = x.seen(r.ID, r.State)
	return r
}

func (x *random) enqueueSome() {
	batch := x.newRuns(4)
	got, err := x.db.Enqueue(x.ctx, batch)
	if err != nil {
		x.Fatal(err)
	}
	want := x.m.enqueue(batch)
	x.same(x.seenResults(want), x.seenResults(got))
}

func (x *random) claimSome() {
	worker := x.anyWorker()
	ql := store.QueueLimit{Queue: pick(x, "q1", "q2"), Limit: x.rand.IntN(7)}
	res := x.claimAll(worker, ql)
	x.same(!x.m.alive(worker), res.WorkerGone)
	if res.WorkerGone {
		return
	}
	if problem := x.m.claim(worker, ql, res.Runs); problem != "" {
		x.Fatalf("claim of %d from %s: %s: %v", ql.Limit, ql.Queue, problem, ids(res.Runs))
	}
	for _, r := range res.Runs {
		x.same(x.m.runs[r.ID].Run, r)
		x.claims[r.ID] = append(x.claims[r.ID], refOf(r))
	}
	for _, r := range x.m.runs {
		if r.Queue == ql.Queue && (r.State == job.Delayed || r.State == job.Suspended) && r.RunAt.After(x.m.now) {
			if res.NextDue.IsZero() || res.NextDue.After(r.RunAt) {
				x.Fatalf("next due is %s, run %s is due at %s", res.NextDue, r.ID, r.RunAt)
			}
		}
	}
}

func (x *random) aFailure() *job.Failure {
	if x.odds(2) {
		return nil
	}
	return &job.Failure{Code: "X_TEST", Message: fmt.Sprint("op ", x.n), Fix: pick(x, "", "fix"), Stack: pick(x, "", "stack")}
}

func (x *random) aStep() store.StepParams {
	p := store.StepParams{
		Name: pick(x, "a", "b", "c", "d"), Kind: job.KindStep, Attempts: x.rand.IntN(3), Output: fmt.Appendf(nil, "%d", x.n),
		Status: pick(x, job.StepCompleted, job.StepCompleted, job.StepStarted, job.StepFailed, job.StepRetrying),
		Error:  x.aFailure(), Elapsed: pick(x, 0, time.Second), Module: pick(x, "", "", "m1", "m2"),
	}
	if x.odds(4) {
		p.Enqueue, p.OutputEnqueued = x.newRuns(2), x.odds(2)
	}
	return p
}

func (x *random) saveSome() {
	var batch []store.StepParams
	for range 1 + x.rand.IntN(3) {
		p := x.aStep()
		p.Ref = x.anyRef()
		batch = append(batch, p)
	}
	got, err := x.db.SaveSteps(x.ctx, batch)
	if err != nil {
		x.Fatal(err)
	}
	want := make([]store.StepResult, len(batch))
	for i, p := range batch {
		if r := x.m.held(p.Ref); r != nil {
			want[i] = x.m.saveStep(r, p)
		}
	}
	x.same(x.seenSteps(want), x.seenSteps(got))
}

func (x *random) settleSome() {
	var batch []store.SettleParams
	for range 1 + x.rand.IntN(3) {
		p := store.SettleParams{
			Ref: x.anyRef(), Delay: pick(x, 0, 10*time.Second, 40*time.Second), Error: x.aFailure(), Output: fmt.Appendf(nil, "%d", x.n),
			Module: pick(x, "", "m1", "m2"), Retention: pick(x, 0, 20*time.Second, time.Hour),
		}
		end := pick(x, outcomes...)
		p.Outcome, p.To = end.outcome, end.to
		if x.odds(3) {
			p.Progress = &job.Progress{Permille: x.n % 1000, Note: "note"}
		}
		if x.odds(3) {
			step := x.aStep()
			if p.Outcome == job.Slept {
				step.Kind, step.Status, step.Sleep = job.KindSleep, job.StepSleeping, pick(x, 10*time.Second, 30*time.Second)
			}
			p.Step = &step
		}
		batch = append(batch, p)
	}
	got, err := x.db.Settle(x.ctx, batch)
	if err != nil {
		x.Fatal(err)
	}
	want := make([]store.SettleResult, len(batch))
	for i, p := range batch {
		want[i] = x.m.settle(p)
	}
	x.same(want, got)
}

// outcomes are the legal ends of an attempt.
var outcomes = legalOutcomes()

type legalEnd struct {
	outcome job.Outcome
	to      job.State
}

func legalOutcomes() []legalEnd {
	var out []legalEnd
	for _, o := range []job.Outcome{job.Completed, job.Slept, job.Retried, job.DeadLettered, job.Dropped, job.Interrupted, job.Deferred, job.Shed, job.Refused} {
		for _, s := range job.States {
			if o.Settles(s) {
				out = append(out, legalEnd{o, s})
			}
		}
	}
	return out
}

func (x *random) registerOne() {
	if len(x.m.workers) > 6 {
		return
	}
	id := fmt.Sprintf("w%d", x.n)
	alone := x.odds(10)
	if err := x.db.Register(x.ctx, store.RegisterParams{ID: id, Lease: lease, Alone: alone}); err != nil {
		x.Fatal(err)
	}
	if alone {
		for _, w := range x.m.workers {
			if w.expires.After(x.m.now) {
				w.expires = x.m.now
			}
		}
	}
	x.m.workers[id] = &modelWorker{expires: x.m.now.Add(lease)}
}

func (x *random) deregisterOne() {
	worker := x.anyWorker()
	x.deregister(worker)
	x.m.deregister(worker)
}

func (x *random) renewSome() {
	p := store.RenewParams{Worker: x.anyWorker(), Lease: lease}
	for range x.rand.IntN(4) {
		p.Held = append(p.Held, x.anyRef())
	}
	got, err := x.db.Renew(x.ctx, p)
	if err != nil {
		x.Fatal(err)
	}
	x.same(x.seenLost(x.m.renew(p)), x.seenLost(got))
}

func (x *random) reclaimSome() {
	p := store.ReclaimParams{Limit: 1000, MaxOrphans: x.rand.IntN(3), DropJobs: []string{"b"}, Retention: map[string]time.Duration{"a": 20 * time.Second}}
	res := x.reclaimWith(p)
	// What the text says is the store's own; the code is not, and burials pin it.
	texts := func(id string) job.Failure {
		recs := x.attempts(id)
		return recs[len(recs)-1].Error
	}
	requeued, buried := x.m.reclaim(p, texts)
	gotRequeued, gotBuried := ids(res.Requeued), ids(res.Buried)
	for _, s := range [][]string{requeued, buried, gotRequeued, gotBuried} {
		slices.Sort(s)
	}
	if !slices.Equal(requeued, gotRequeued) || !slices.Equal(buried, gotBuried) {
		x.Fatalf("reclaim: model requeued %v and buried %v, store %v and %v", requeued, buried, gotRequeued, gotBuried)
	}
	for _, r := range res.Buried {
		want := job.CodeMaxAttempts
		if p.MaxOrphans > 0 && r.Orphans >= p.MaxOrphans {
			want = job.CodeWorkerLost
		}
		x.same(want, r.Error.Code)
	}
}

func (x *random) cancelOne() {
	p := store.CancelParams{ID: x.anyRun(), Reason: pick(x, "", "because"), Retention: pick(x, 0, 20*time.Second)}
	_, err := x.db.Cancel(x.ctx, p)
	x.same(x.m.cancel(p), abi.CodeOf(err))
}

func (x *random) requeueOne() {
	p := store.RequeueParams{ID: x.anyRun(), FromStep: pick(x, "", "", "a", "b"), Attempts: pick(x, 0, 0, 3)}
	_, err := x.db.Requeue(x.ctx, p)
	x.same(x.m.requeue(p), abi.CodeOf(err))
}

func (x *random) purgeSome() {
	n, err := x.db.Purge(x.ctx, 10_000)
	if err != nil {
		x.Fatal(err)
	}
	x.same(x.m.purge(), n)
}

func (x *random) advance() { x.db.Advance(pick(x, time.Second, 10*time.Second, 15*time.Second)) }

func (x *random) compareAll() {
	x.Helper()
	x.m.now = x.now()
	for id, r := range x.m.runs {
		x.same(x.seenRun(r.Run), x.seenRun(x.get(id)))
		x.same(r.steps, x.steps(id))
		x.same(r.attempts, x.attempts(id))
	}
	want := x.m.list()
	x.same(want[:min(len(want), 1000)], ids(x.list(store.ListParams{Limit: 1000})))
	st := x.stats()
	var queues []store.QueueStats
	for _, q := range st.Queues {
		if q != (store.QueueStats{Queue: q.Queue}) { // a queue whose runs are all purged may be listed
			queues = append(queues, q)
		}
	}
	st.Queues = queues
	x.same(x.m.stats(), st)
}
