package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

// Random compares a store with a model of its contract, op by op, for a number
// of random ops. The seed is printed with a failure and decides everything; two
// stores that pass the same seed answered the same. Limits and pauses begin after a
// fifth of them, until when the model knows to the run what a claim has to answer;
// then it holds a claim to two sides, as RandomLimits does, which makes few kinds of
// ops and long queues.
//
// The database's clock must stand still between two Advances.
func Random(t *testing.T, open Factory, seed uint64, ops int) {
	e := newEnv(t, open)
	x := &random{
		env: e, m: newModel(), rand: rand.New(rand.NewPCG(seed, 0)), claims: map[string][]job.Ref{}, logged: map[job.Ref]logged{},
		limitedFrom: ops / 5, limits: map[string]*limit.Queue{}, recheck: map[string]bool{},
	}
	done := false
	defer func() {
		if !done {
			t.Logf("seed %d, after %d ops; the last was %s", seed, x.n, x.last)
		}
	}()
	for x.n = range ops {
		x.m.now = e.now()
		if x.n%max(ops/10, 1) == 0 {
			x.last = "change limits"
			x.changeLimits() // whatever the others draw: where a store hands runs over by the time, that is not the seed's alone
		}
		x.step()
		if x.n%200 == 0 {
			x.compareAll()
		}
	}
	x.compareAll()
	if ops >= 1000 && (x.took == 0 || x.held == 0 || x.pushedOut == 0 || x.aged == 0) {
		t.Fatalf("%s, lines pushed out %d times, %d aged: that shows nothing", x.shown(), x.pushedOut, x.aged)
	}
	done = true
}

type random struct {
	*env
	m      *model
	rand   *rand.Rand
	n      int
	last   string
	claims map[string][]job.Ref // every claim of a run that was ever handed out
	logged map[job.Ref]logged

	limitedFrom int                     // the first op that may limit or pause anything
	loose       bool                    // something was
	limits      map[string]*limit.Queue // by queue; nil is none
	recheck     map[string]bool         // queues whose limits have changed since their last claim

	took, refused, held, pushedOut, aged int // that the history shows something
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
	if x.odds(2) {
		p.Gate = x.aGate(p.Job)
	}
	p.Minted = x.odds(2) // as it is
	if x.odds(20) {
		p.ID, p.Minted = x.anyRun(), false
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
		{"enqueue", 14, x.enqueueSome}, {"enqueue if", 3, x.enqueueIf}, {"enqueue for", 4, x.enqueueFor}, {"claim", 20, x.claimSome}, {"settle", 30, x.settleSome}, {"save step", 15, x.saveSome}, {"record", 15, x.recordSome},
		{"renew", 6, x.renewSome}, {"register", 3, x.registerOne}, {"deregister", 1, x.deregisterOne}, {"reclaim", 3, x.reclaimSome},
		{"cancel", 3, x.cancelOne}, {"let go", 2, x.letGoOne}, {"requeue", 3, x.requeueOne}, {"promote", 2, x.promoteOne}, {"delete", 1, x.deleteOne}, {"purge", 1, x.purgeSome},
		{"lead", 3, x.leadSome}, {"fire", 5, x.fireSome}, {"pause", 1, x.pauseOne}, {"release", 1, x.releaseSome}, {"forget", 1, x.forgetOne},
		{"publish", 6, x.publishSome}, {"publish inside", 3, x.publishInside}, {"wait", 5, x.waitSome}, {"park", 8, x.parkOne},
		{"pending event", 3, x.pendingOne}, {"purge events", 1, x.purgeEvents},
		{"log", 5, x.logSome}, {"change limits", 0, x.changeLimits}, {"set pauses", 2, x.setPauses}, {"age", 2, x.ageSome},
		{"advance", 2, x.advance}, // the model's clock follows with the next step
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
	if reflect.DeepEqual(want, got) {
		return // soon told
	}
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
	return x.seenBlocked(r)
}

func (x *random) compareAll() {
	x.Helper()
	x.m.now = x.now()
	for id, r := range x.m.runs {
		x.same(x.seenRun(r.Run), x.seenRun(x.get(id)))
		x.same(r.steps, x.steps(id))
		x.same(r.attempts, x.attempts(id))
	}
	for _, id := range slices.Sorted(maps.Keys(x.m.runs)) {
		if len(x.m.runs[id].log.lines) > 0 {
			x.sameLog(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(x.m.purged)) {
		if x.odds(20) {
			x.sameLog(id)
		}
	}
	x.same(x.m.listPauses(), x.listedPauses())
	want := x.m.list()
	x.same(want[:min(len(want), 1000)], ids(x.list(store.ListParams{Limit: 1000})))
	x.same(x.m.listSchedules(), x.schedules())
	x.same(x.m.listEvents(), x.listEvents())
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
