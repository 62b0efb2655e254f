package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Hammer has workers, enqueuers, an operator and a clock that jumps work on one
// store at once, and then holds the store to every answer it gave. What each of
// them does is decided by the seed, which is printed with a failure; how they
// interleave is not. Run it with -race.
func Hammer(t *testing.T, open Factory, seed uint64, rounds int) {
	h := &hammer{
		env: newEnv(t, open), seed: seed, rounds: rounds, enqueued: map[string]store.EnqueueParams{},
		claimed: map[string][]int64{}, landed: map[job.Ref]job.Outcome{}, steps: map[string]map[string]stepWrite{},
	}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { h.work(i) })
	}
	for i := range 3 {
		wg.Go(func() { h.feed(i) })
	}
	wg.Go(h.operate)
	wg.Wait()
	h.finishAll()
	h.check()
}

type hammer struct {
	*env
	seed   uint64
	rounds int

	mu       sync.Mutex
	enqueued map[string]store.EnqueueParams // by the id that was answered as new
	claimed  map[string][]int64             // ordinals handed out
	landed   map[job.Ref]job.Outcome
	steps    map[string]map[string]stepWrite // the latest that landed, by run and name
}

type stepWrite struct {
	claim  int64
	output string
}

func (h *hammer) rng(role, i int) *rand.Rand {
	return rand.New(rand.NewPCG(h.seed, uint64(role*100+i)))
}

// failed reports a failure from a goroutine that is not the test's.
func (h *hammer) failed(what string, err error) bool {
	if err == nil {
		return h.Failed()
	}
	h.Errorf("%s: %v", what, err)
	return true
}

func (h *hammer) feed(i int) {
	r := h.rng(1, i)
	for n := range h.rounds {
		var batch []store.EnqueueParams
		for k := range 1 + r.IntN(4) {
			batch = append(batch, store.EnqueueParams{
				ID: fmt.Sprintf("0197%04x-%04x-7000-8000-%012x", n, k, i), Job: "j", Queue: []string{"q1", "q2"}[r.IntN(2)],
				Tenant: []string{"", "a", "b"}[r.IntN(3)], Key: []string{"", "", "x", "y"}[r.IntN(4)], Input: []byte(`{}`), MaxAttempts: 3,
				Delay: time.Duration(r.IntN(3)) * 5 * time.Second,
			})
		}
		res, err := h.db.Enqueue(h.ctx, batch)
		if h.failed("enqueue", err) {
			return
		}
		h.mu.Lock()
		for k, e := range res {
			if !e.Deduped {
				if e.ID != batch[k].ID {
					h.Errorf("run %s was answered as new for %s", e.ID, batch[k].ID)
				}
				h.enqueued[e.ID] = batch[k]
				continue
			}
			// The holder may not be in the books yet: it may be another's whose
			// answer is under way. It must be of the same namespace all the same.
			if holder, ok := h.enqueued[e.ID]; ok && (holder.Key != batch[k].Key || holder.Tenant != batch[k].Tenant) {
				h.Errorf("key %s of %q was deduped into key %s of %q", batch[k].Key, batch[k].Tenant, holder.Key, holder.Tenant)
			}
		}
		h.mu.Unlock()
	}
}

// work is a worker: it registers, claims, writes steps, settles, sometimes sits
// still until its lease has lapsed, and then comes back under another name while
// what it held goes on under the old one.
func (h *hammer) work(i int) {
	r := h.rng(2, i)
	var worker string
	var held []job.Run
	for n := range h.rounds {
		if worker == "" {
			worker = fmt.Sprintf("w%d-%d", i, n)
			if h.failed("register", h.db.Register(h.ctx, store.RegisterParams{ID: worker, Lease: lease})) {
				return
			}
		}
		res, err := h.db.Claim(h.ctx, store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: "q1", Limit: r.IntN(4)}, {Queue: "q2", Limit: r.IntN(4)}}})
		if h.failed("claim", err) {
			return
		}
		if res.WorkerGone {
			worker = ""
		}
		h.mu.Lock()
		for _, run := range res.Runs {
			h.claimed[run.ID] = append(h.claimed[run.ID], run.Claims)
		}
		h.mu.Unlock()
		held = append(held, res.Runs...)
		if r.IntN(3) == 0 && worker != "" {
			refs := make([]job.Ref, len(held))
			for i := range held {
				refs[i] = refOf(held[i])
			}
			if _, err := h.db.Renew(h.ctx, store.RenewParams{Worker: worker, Lease: lease, Held: refs}); h.failed("renew", err) {
				return
			}
		}
		if r.IntN(40) == 0 && worker != "" {
			if h.failed("deregister", h.db.Deregister(h.ctx, worker)) {
				return
			}
			worker = ""
		}
		for len(held) > 0 && r.IntN(5) > 0 {
			k := r.IntN(len(held))
			if !h.attempt(r, held[k], n) {
				return
			}
			held = slices.Delete(held, k, k+1)
		}
	}
}

// attempt writes some steps of a claimed run and settles it.
func (h *hammer) attempt(r *rand.Rand, run job.Run, n int) bool {
	ref := refOf(run)
	for range r.IntN(3) {
		name, output := string(rune('a'+r.IntN(4))), fmt.Sprintf("%s/%d", ref.Worker, n)
		res, err := h.db.SaveSteps(h.ctx, []store.StepParams{{Ref: ref, Name: name, Kind: job.KindStep, Status: job.StepCompleted, Output: []byte(output), New: true}})
		if h.failed("save step", err) {
			return false
		}
		if res[0].Landed {
			h.mu.Lock()
			if h.steps[ref.RunID] == nil {
				h.steps[ref.RunID] = map[string]stepWrite{}
			}
			if old := h.steps[ref.RunID][name]; old.claim <= ref.Claim {
				h.steps[ref.RunID][name] = stepWrite{ref.Claim, output}
			}
			h.mu.Unlock()
		}
	}
	end := outcomes[r.IntN(len(outcomes))]
	p := store.SettleParams{Ref: ref, Outcome: end.outcome, To: end.to, Delay: time.Duration(r.IntN(2)) * 5 * time.Second, Output: []byte(ref.Worker)}
	res, err := h.db.Settle(h.ctx, []store.SettleParams{p})
	if h.failed("settle", err) {
		return false
	}
	if res[0].Landed {
		h.mu.Lock()
		h.landed[ref] = end.outcome
		h.mu.Unlock()
	}
	return true
}

// operate cancels, requeues, reclaims and lets time pass.
func (h *hammer) operate() {
	r := h.rng(3, 0)
	for range h.rounds {
		h.mu.Lock()
		var id string
		for known := range h.claimed {
			id = known // whichever: the interleaving is not the seed's anyway
			break
		}
		h.mu.Unlock()
		var err error
		switch r.IntN(6) {
		case 0:
			_, err = h.db.Cancel(h.ctx, store.CancelParams{ID: id, Reason: "hammer"})
		case 1:
			_, err = h.db.Requeue(h.ctx, store.RequeueParams{ID: id})
		case 2:
			_, err = h.db.Reclaim(h.ctx, store.ReclaimParams{MaxOrphans: 3})
		case 3:
			h.db.Advance(time.Duration(r.IntN(8)) * time.Second)
		case 4:
			_, err = h.db.Stats(h.ctx)
		case 5:
			_, err = h.db.List(h.ctx, store.ListParams{State: job.States[r.IntN(len(job.States))]})
		}
		switch abi.CodeOf(err) {
		case job.CodeNotFound, job.CodeNotCancellable, job.CodeNotRequeueable, job.CodeDuplicate:
			err = nil
		}
		if h.failed("operate", err) {
			return
		}
	}
}

// finishAll brings every run to its end, as a fleet that is left alone does.
func (h *hammer) finishAll() {
	h.Helper()
	for round := range 1000 {
		h.db.Advance(lease)
		h.reclaim()
		worker := fmt.Sprintf("last-%d", round)
		h.register(worker)
		res := h.claimAll(worker, store.QueueLimit{Queue: "q1", Limit: 100}, store.QueueLimit{Queue: "q2", Limit: 100})
		for _, run := range res.Runs {
			h.claimed[run.ID] = append(h.claimed[run.ID], run.Claims)
			h.finish(run, job.Completed, job.Done)
			h.landed[refOf(run)] = job.Completed
		}
		if len(res.Runs) == 0 && res.NextDue.IsZero() {
			return
		}
	}
	h.Fatal("runs are left after a thousand rounds")
}

func (h *hammer) check() {
	h.Helper()
	if len(h.enqueued) == 0 || len(h.landed) == 0 {
		h.Fatal("nothing happened")
	}
	counts := map[job.State]int64{}
	for id := range h.enqueued {
		run := h.get(id)
		counts[run.State]++
		if !run.State.Terminal() {
			h.Errorf("run %s is still %s", id, run.State)
		}
		ordinals := h.claimed[id]
		slices.Sort(ordinals)
		for i, c := range ordinals {
			if c != int64(i+1) {
				h.Errorf("run %s was handed out under the ordinals %v", id, ordinals)
				break
			}
		}
		if int64(len(ordinals)) != run.Claims {
			h.Errorf("run %s counts %d claims, %d were handed out", id, run.Claims, len(ordinals))
		}
		h.checkHistory(run)
	}
	if n := len(h.claimed); n > len(h.enqueued) {
		h.Errorf("%d runs were handed out, %d enqueued", n, len(h.enqueued))
	}
	got := map[job.State]int64{}
	for _, q := range h.stats().Queues {
		got[job.Done] += q.Done
		got[job.Failed] += q.Failed
		got[job.Dead] += q.Dead
		got[job.Cancelled] += q.Cancelled
		if q.Ready+q.Delayed+q.Running+q.Suspended != 0 {
			h.Errorf("stats count live runs: %+v", q)
		}
	}
	for _, st := range job.States {
		if got[st] != counts[st] {
			h.Errorf("stats count %d %s runs, there are %d", got[st], st, counts[st])
		}
	}
}

// checkHistory holds a run's timeline and steps to what was answered.
func (h *hammer) checkHistory(run job.Run) {
	h.Helper()
	recs := map[int64]job.AttemptRecord{}
	for _, rec := range h.attempts(run.ID) {
		recs[rec.Claim] = rec
	}
	for ref, outcome := range h.landed {
		if ref.RunID != run.ID {
			continue
		}
		rec, ok := recs[ref.Claim]
		if !ok && ref.Claim == 1 && outcome == job.Completed && run.Claims == 1 {
			continue
		}
		if rec.Outcome != outcome || rec.Worker != ref.Worker {
			h.Errorf("claim %d of run %s landed as %s of %s, the timeline says %s of %s", ref.Claim, run.ID, outcome, ref.Worker, rec.Outcome, rec.Worker)
		}
	}
	stored := map[string]string{}
	for _, s := range h.env.steps(run.ID) {
		stored[s.Name] = string(s.Output)
	}
	for name, w := range h.steps[run.ID] {
		if stored[name] != w.output {
			h.Errorf("step %s of run %s is %q, the last that landed was %q", name, run.ID, stored[name], w.output)
		}
	}
	if len(stored) != len(h.steps[run.ID]) {
		h.Errorf("run %s has %d steps, %d landed", run.ID, len(stored), len(h.steps[run.ID]))
	}
}
