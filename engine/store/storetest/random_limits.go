package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

// What the random history has to do with limits and pauses. They begin some way
// into it: before, what a claim has to answer is known to the run.

// aGate is what an enqueuer rendered, for a run of the job.
func (x *random) aGate(jobName string) string {
	if jobName == "a" {
		return pick(x, "", limit.JobGate("a"), limit.JobGate("a"))
	}
	return pick(x, "", limit.KeyGate("b", "1"), limit.KeyGate("b", "2"), limit.KeyGate("b", "3"))
}

func (x *random) aRate(most int) (r limit.Rate) {
	return limit.Rate{Limit: 1 + x.rand.IntN(most), Per: pick(x, 7*time.Second, 20*time.Second, time.Minute)}
}

// changeLimits is a deploy.
func (x *random) changeLimits() {
	if x.n < x.limitedFrom {
		return
	}
	x.loose = true
	queue := pick(x, "q1", "q2")
	x.recheck[queue] = true
	if x.limits[queue] = nil; x.odds(5) {
		return
	}
	q := &limit.Queue{Jobs: map[string]limit.Job{}}
	for _, name := range []string{"a", "b"} {
		l := limit.Job{Keyed: name == "b"}
		if !x.odds(4) {
			l.Concurrency = 1 + x.rand.IntN(3)
		}
		if l.Keyed = l.Keyed && !x.odds(6); l.Keyed {
			l.Fail = x.odds(2)
		}
		if x.odds(4) {
			l.Rate = x.aRate(4)
		}
		q.Jobs[name] = l
	}
	if x.odds(3) {
		q.PerTenant = 1 + x.rand.IntN(3)
	}
	if x.odds(4) {
		q.TenantHere = 1 + x.rand.IntN(3)
	}
	if x.odds(4) {
		q.Rate, q.ByTenant = x.aRate(8), x.odds(2)
	}
	x.limits[queue] = q
}

// setPauses resumes sooner than it pauses, or all would stand.
func (x *random) setPauses() {
	if x.n < x.limitedFrom {
		return
	}
	x.loose = true
	p := store.PauseParams{Kind: pick(x, store.PauseQueue, store.PauseJob, store.PauseTenant), By: pick(x, "", "ann"), Reason: pick(x, "", "why"), Resume: x.odds(2)}
	switch p.Kind {
	case store.PauseQueue:
		p.Name = pick(x, "q1", "q2")
	case store.PauseJob:
		p.Name = pick(x, "a", "b")
	case store.PauseTenant:
		p.Name = pick(x, "", "t1", "t2", "t3")
	}
	if known := x.m.listPauses(); len(known) > 0 && !x.odds(4) {
		row := pick(x, known...)
		p.Kind, p.Name, p.Resume = row.Kind, row.Name, true
	}
	got, err := x.db.SetPause(x.ctx, p)
	if err != nil {
		x.Fatalf("pause %+v: %v (%s)", p, err, abi.CodeOf(err))
	}
	x.same(x.m.setPause(p), got)
}

func (x *random) claimSomeUnder() {
	x.claimUnder(x.anyWorker(), pick(x, "q1", "q2"), 1+x.rand.IntN(6))
}

// undoableHolders are runs at a gate that a cancel would have undone: there are few.
func (x *random) undoableHolders() (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(x.m.runs)) {
		if r := x.m.runs[id]; r.State == job.Running && r.holds != "" && r.toUndo().Undoable {
			ids = append(ids, id)
		}
	}
	return ids
}

// lookAt claims all that may go: what the op before should have opened is not left
// for the next one to open.
func (x *random) lookAt(queue string) {
	for _, worker := range slices.Sorted(maps.Keys(x.m.workers)) {
		if x.m.alive(worker) {
			x.claimUnder(worker, queue, 50)
			return
		}
	}
}

// claimUnder claims until the store has no more for now.
func (x *random) claimUnder(worker, queue string, want int) {
	q := &limit.Queue{}
	if l := x.limits[queue]; l != nil {
		of := *l
		q = &of
	}
	q.Here = map[string]int{}
	for _, r := range x.m.runs {
		if r.State == job.Running && r.Worker == worker && r.Queue == queue {
			q.Here[r.Tenant]++
		}
	}
	for range 100 {
		ql := store.QueueLimit{Queue: queue, Limit: want, Recheck: x.recheck[queue], Limits: &limit.Queue{}}
		*ql.Limits = *q
		ql.Limits.Here = maps.Clone(q.Here)
		if x.limits[queue] == nil {
			ql.Limits = nil
		}
		aside := x.aside(queue)
		res := x.claimAll(worker, ql)
		x.same(!x.m.alive(worker), res.WorkerGone)
		if res.WorkerGone {
			return
		}
		x.recheck[queue] = false
		if problem := x.m.outOfTurn(queue, res, aside); problem != "" {
			x.Fatalf("claim of %d from %s under %+v: %s: %v", want, queue, x.limits[queue], problem, ids(res.Runs))
		}
		if problem := x.m.claimUnder(worker, q, queue, res); problem != "" {
			x.Fatalf("claim of %d from %s under %+v: %s: %v, busy %v", want, queue, x.limits[queue], problem, ids(res.Runs), res.Busy)
		}
		for _, r := range res.Runs {
			x.same(x.m.runs[r.ID].Run, r)
			x.claims[r.ID] = append(x.claims[r.ID], refOf(r))
		}
		x.took += len(res.Runs)
		x.refused += len(res.Busy)
		if want -= len(res.Runs); want < 0 {
			x.Fatalf("%d more were claimed than may be", -want)
		}
		if want == 0 {
			return
		}
		if len(res.Runs) > 0 || !res.NextDue.IsZero() && !res.NextDue.After(res.Now) {
			continue
		}
		x.nextDue(queue, res)
		if problem := x.m.leftUnder(q, queue, res, func(id string) string { return x.get(id).Blocked }); problem != "" {
			x.Fatalf("claim of %d more from %s under %+v, paused %+v: %s; now %s", want, queue, x.limits[queue], x.m.listPauses(), problem, x.m.now)
		}
		for _, r := range x.m.runs {
			if r.Queue == queue && x.m.due(r) && !x.m.pausedRun(r) {
				x.held++
			}
		}
		return
	}
	x.Fatal("a claim is due again and again")
}

// aside is what the runs of a queue are set aside for; "" is nothing.
func (x *random) aside(queue string) map[string]string {
	x.Helper()
	out := map[string]string{}
	for _, r := range x.list(store.ListParams{Queue: queue, State: job.Ready, Limit: 1000}) {
		out[r.ID] = r.Blocked
	}
	return out
}

// seenBlocked checks what a run is said to wait for, and leaves it out: when a run
// that may not go is set aside is the store's.
func (x *random) seenBlocked(r job.Run) job.Run {
	x.Helper()
	if r.Blocked == "" {
		return r
	}
	may := []string{limit.JobGate(r.Job), limit.KeyGate(r.Job, ""), limit.RateGate(r.Job), limit.PauseGate(r.Job), r.Gate}
	if r.State != job.Ready || !slices.Contains(may, r.Blocked) {
		x.Fatalf("run %s, %s, waits for %s", r.ID, r.State, r.Blocked)
	}
	r.Blocked = ""
	return r
}

func (x *random) listedPauses() []store.Pause {
	x.Helper()
	got, err := x.db.ListPauses(x.ctx)
	if err != nil {
		x.Fatal(err)
	}
	return got
}

// shown is that the history had something to bound.
func (x *random) shown() string {
	return fmt.Sprintf("%d runs were claimed under limits and pauses, %d refused, %d held up", x.took, x.refused, x.held)
}

// ageSome ages what has been ready for long. Which is ready is the store's to say: it
// may leave a run that is due as delayed until a claim. Of one lane the longest waiting
// go first, as far as the limit lets them.
func (x *random) ageSome() {
	p := store.AgeParams{Queue: pick(x, "q1", "q2"), Waited: pick(x, time.Second, 15*time.Second, time.Minute), Limit: pick(x, 0, 0, 1, 3)}
	var old []*modelRun
	for _, id := range slices.Sorted(maps.Keys(x.m.runs)) {
		r := x.m.runs[id]
		if r.Queue == p.Queue && x.m.due(r) && !r.Aged && !r.RunAt.After(x.m.now.Add(-p.Waited)) && x.get(id).State == job.Ready {
			old = append(old, r)
		}
	}
	n, err := x.db.Age(x.ctx, p)
	if err != nil {
		x.Fatal(err)
	}
	want := len(old)
	if p.Limit > 0 {
		want = min(want, p.Limit)
	}
	if n != want {
		x.Fatalf("aged %d of the %d of %s that waited for %s, at most %d", n, len(old), p.Queue, p.Waited, p.Limit)
	}
	x.aged += n
	var left []*modelRun
	for _, r := range old {
		is := x.get(r.ID)
		if !is.Aged {
			left = append(left, r)
			continue
		}
		n--
		for _, o := range left {
			if o.Tenant == r.Tenant && o.Priority == r.Priority && o.RunAt.Before(r.RunAt) && is.Blocked == "" && x.get(o.ID).Blocked == "" {
				x.Fatalf("run %s was aged before run %s, which waited longer", r.ID, o.ID)
			}
		}
	}
	if n != 0 {
		x.Fatalf("%d runs were aged that had not waited for %s", n, p.Waited)
	}
	for _, r := range old {
		r.Aged = !slices.Contains(left, r)
	}
}
