package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func (x *random) enqueueSome() {
	batch := x.newRuns(4)
	got, err := x.db.Enqueue(x.ctx, batch)
	if err != nil {
		x.Fatal(err)
	}
	want := x.m.enqueue(batch)
	x.same(x.seenResults(want), x.seenResults(got))
}

// enqueueIf accepts batches that are all new, and some others.
func (x *random) enqueueIf() {
	batch := x.newRuns(4)
	lenient := x.odds(3)
	var want []store.EnqueueResult
	got, err := x.db.EnqueueIf(x.ctx, batch, func(results []store.EnqueueResult) error {
		if lenient {
			return nil
		}
		return unlessDeduped(results)
	})
	if err != nil && !errors.Is(err, errWhy) {
		x.Fatal(err)
	}
	if x.same(!lenient && x.m.wouldDedupe(batch), err != nil); err == nil {
		want = x.m.enqueue(batch)
	}
	x.same(x.seenResults(want), x.seenResults(got))
}

// enqueueFor enqueues runs that a worker would begin at once. A store need not hand
// them over, but may only where a claim would.
func (x *random) enqueueFor() {
	worker := x.anyWorker()
	queue := pick(x, "q1", "q2")
	batch := x.newRuns(2)
	for i := range batch {
		p := &batch[i]
		p.Worker, p.Queue = worker, queue
		if x.odds(4) {
			continue // something may be in the way
		}
		p.Key, p.Delay, p.Gate = "", 0, ""
	}
	if x.limits[queue] != nil {
		for i := range batch { // what an enqueuer leaves to claims
			batch[i].Worker = ""
		}
	}
	idle := x.m.alive(worker)
	for id, r := range x.m.runs {
		// What is set aside is in nobody's way.
		idle = idle && !(r.Queue == queue && x.m.due(r) && (!x.loose || x.get(id).Blocked == ""))
	}
	for _, p := range batch {
		idle = idle && !x.m.pausedRun(&modelRun{Run: job.Run{Queue: queue, Job: p.Job, Tenant: p.Tenant}})
	}
	got, err := x.db.Enqueue(x.ctx, batch)
	if err != nil {
		x.Fatal(err)
	}
	want := x.m.enqueue(batch)
	var begun []job.Run
	for i := range got {
		if got[i].Run == nil {
			continue
		}
		if !idle || want[i].Deduped {
			x.Fatalf("run %s was handed over where a claim would not have found it", got[i].ID)
		}
		begun = append(begun, *got[i].Run)
		want[i].State = job.Running
	}
	if len(begun) > 0 {
		for _, r := range begun {
			x.m.begin(x.m.runs[r.ID], worker)
		}
		for _, r := range begun {
			x.same(x.m.runs[r.ID].Run, r)
			x.claims[r.ID] = append(x.claims[r.ID], refOf(r))
		}
	}
	for i := range got {
		got[i].Run = nil
	}
	x.same(x.seenResults(want), x.seenResults(got))
}

func (x *random) claimSome() {
	if x.loose {
		x.claimSomeUnder()
		return
	}
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
	x.nextDue(ql.Queue, res)
}

// nextDue checks that a claim tells of all that will be due.
func (x *random) nextDue(queue string, res store.ClaimResult) {
	x.Helper()
	for _, r := range x.m.runs {
		if r.Queue == queue && (r.State == job.Delayed || r.State == job.Suspended) && r.RunAt.After(x.m.now) && !x.m.isPaused(store.PauseQueue, queue) {
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
		Name: pick(x, "a", "b", "c", "d"), Kind: pick(x, job.KindStep, job.KindStep, job.KindUndoable), Attempts: x.rand.IntN(3), Output: fmt.Appendf(nil, "%d", x.n),
		Status: pick(x, job.StepCompleted, job.StepCompleted, job.StepStarted, job.StepFailed, job.StepRetrying),
		Error:  x.aFailure(), Elapsed: pick(x, 0, time.Second), Module: pick(x, "", "", "m1", "m2"),
	}
	p.New = x.odds(2) // a hint, right or wrong
	if x.odds(3) {    // what most records are
		p.Status, p.Attempts, p.Error = job.StepCompleted, 0, nil
	}
	if x.odds(4) {
		p.Enqueue, p.OutputEnqueued = x.newRuns(2), x.odds(2)
	}
	return p
}

func (x *random) someSteps() (batch []store.StepParams) {
	for range 1 + x.rand.IntN(3) {
		p := x.aStep()
		p.Ref = x.anyRef()
		batch = append(batch, p)
	}
	return batch
}

func (x *random) saveSome() {
	batch := x.someSteps()
	got, err := x.db.SaveSteps(x.ctx, batch)
	if err != nil {
		x.Fatal(err)
	}
	x.saved(batch, got)
}

// recordSome is saveSome and settleSome, together if the store can.
func (x *random) recordSome() {
	to, ok := x.db.(store.Recorder)
	if !ok {
		x.saveSome()
		x.settleSome()
		return
	}
	steps, settles := x.someSteps(), x.someSettles()
	saved, settled, err := to.Record(x.ctx, steps, settles)
	if err != nil {
		x.Fatal(err)
	}
	x.saved(steps, saved)
	x.settled(settles, settled)
}

// saved compares what saving a batch answered.
func (x *random) saved(batch []store.StepParams, got []store.StepResult) {
	x.Helper()
	want := make([]store.StepResult, len(batch))
	for i, p := range batch {
		if r := x.m.held(p.Ref); r != nil {
			want[i] = x.m.saveStep(r, p)
		}
	}
	x.same(x.seenSteps(want), x.seenSteps(got))
}

func (x *random) someSettles() (batch []store.SettleParams) {
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
		if x.odds(4) {
			p.Enqueue = x.newRuns(2)
		}
		if x.odds(4) {
			p.Log = x.someLines(p.Ref)
		}
		batch = append(batch, p)
	}
	return batch
}

func (x *random) settleSome() {
	batch := x.someSettles()
	got, err := x.db.Settle(x.ctx, batch)
	if err != nil {
		x.Fatal(err)
	}
	x.settled(batch, got)
}

// settled compares what settling a batch answered.
func (x *random) settled(batch []store.SettleParams, got []store.SettleResult) {
	x.Helper()
	want := make([]store.SettleResult, len(batch))
	for i, p := range batch {
		want[i] = x.m.settle(p)
	}
	x.m.followUp()
	x.same(want, got)
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
	for range x.rand.IntN(3) {
		ref := x.anyRef()
		if slices.ContainsFunc(p.Progress, func(h store.HeldProgress) bool { return h.Ref.RunID == ref.RunID }) {
			continue
		}
		p.Progress = append(p.Progress, store.HeldProgress{Ref: ref, Progress: job.Progress{Permille: x.rand.IntN(1001), Note: "held"}})
	}
	got, err := x.db.Renew(x.ctx, p)
	if err != nil {
		x.Fatal(err)
	}
	x.same(x.seenLost(x.m.renew(p)), x.seenLost(got))
}

func (x *random) reclaimSome() {
	p := store.ReclaimParams{Limit: 1000, MaxOrphans: x.rand.IntN(3), DropJobs: []string{"b"}, UnwindJobs: pick(x, nil, []string{"a"}), Retention: map[string]time.Duration{"a": 20 * time.Second}}
	follow := map[string]store.EnqueueParams{}
	p.Follow = func(r job.Run) ([]store.EnqueueParams, error) {
		if _, ok := follow[r.ID]; !ok {
			told := x.newRun()
			told.Key = fmt.Sprintf("settled:%s:%d", r.ID, r.Claims) // the order of burials is the store's
			follow[r.ID] = told
		}
		return []store.EnqueueParams{follow[r.ID]}, nil
	}
	res := x.reclaimWith(p)
	// What the text says is the store's own; the code is not, and burials pin it.
	texts := func(id string) job.Failure {
		recs := x.attempts(id)
		return recs[len(recs)-1].Error
	}
	requeued, buried := x.m.reclaim(p, texts)
	for _, id := range buried {
		x.m.enqueue([]store.EnqueueParams{follow[id]})
	}
	gotRequeued, gotBuried := ids(res.Requeued), ids(res.Buried)
	for _, s := range [][]string{requeued, buried, gotRequeued, gotBuried} {
		slices.Sort(s)
	}
	if !slices.Equal(requeued, gotRequeued) || !slices.Equal(buried, gotBuried) {
		x.Fatalf("reclaim: model requeued %v and buried %v, store %v and %v", requeued, buried, gotRequeued, gotBuried)
	}
	for _, r := range res.Buried {
		want := job.CodeMaxAttempts
		if r.Attempt > r.MaxAttempts {
			want = job.CodeCompensationFailed
		}
		if p.MaxOrphans > 0 && r.Orphans >= p.MaxOrphans {
			want = job.CodeWorkerLost
		}
		x.same(want, r.Error.Code)
	}
}

func (x *random) cancelOne() {
	p := store.CancelParams{ID: x.anyRun(), Reason: pick(x, "", "because"), Retention: pick(x, 0, 20*time.Second), NoCompensate: x.odds(4)}
	if x.odds(2) {
		p.ID = x.anyRef().RunID // one that runs
	}
	if of := x.undoableHolders(); len(of) > 0 && x.odds(2) {
		p.ID, p.NoCompensate = pick(x, of...), false
	}
	held := ""
	if r := x.m.runs[p.ID]; r != nil && r.State == job.Running && r.holds != "" {
		held = r.Queue
	}
	_, err := x.db.Cancel(x.ctx, p)
	if x.same(x.m.cancel(p), abi.CodeOf(err)); held != "" {
		x.lookAt(held)
	}
}

func (x *random) letGoOne() {
	ref := x.anyRef()
	if err := x.db.LetGo(x.ctx, ref); err != nil {
		x.Fatal(err)
	}
	x.m.letGo(ref)
}

func (x *random) requeueOne() {
	p := store.RequeueParams{ID: x.anyRun(), FromStep: pick(x, "", "", "a", "b"), Attempts: pick(x, 0, 0, 3), NoCompensate: x.odds(8), Latest: x.odds(8)}
	got, err := x.db.Requeue(x.ctx, p)
	if x.same(x.m.requeue(p), abi.CodeOf(err)); err == nil {
		x.same(x.m.runs[p.ID].Run, got)
	}
}

func (x *random) promoteOne() {
	id := x.anyRun()
	_, err := x.db.Promote(x.ctx, store.PromoteParams{ID: id})
	x.same(x.m.promote(id), abi.CodeOf(err))
}

func (x *random) deleteOne() {
	id := x.anyRun()
	_, err := x.db.Delete(x.ctx, store.DeleteParams{ID: id})
	x.same(x.m.remove(id), abi.CodeOf(err))
}

func (x *random) purgeSome() {
	n, err := x.db.Purge(x.ctx, 10_000)
	if err != nil {
		x.Fatal(err)
	}
	x.same(x.m.purge(), n)
}

func (x *random) advance() { x.db.Advance(pick(x, time.Second, 10*time.Second, 15*time.Second)) }

// outcomes are the legal ends of an attempt.
var outcomes = legalOutcomes()

type legalEnd struct {
	outcome job.Outcome
	to      job.State
}

func legalOutcomes() []legalEnd {
	var out []legalEnd
	for _, o := range []job.Outcome{job.Completed, job.Slept, job.Retried, job.DeadLettered, job.Dropped, job.Interrupted, job.Deferred, job.Shed, job.Refused, job.Unwinding, job.Undone} {
		for _, s := range job.States {
			if o.Settles(s) {
				out = append(out, legalEnd{o, s})
			}
		}
	}
	return out
}
