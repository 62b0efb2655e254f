package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

// HammerLimits has workers of several stores on one database claim, run, end and
// die at once under limits, counts how many really run at a time behind each, and
// then has every run end. stores are open on one empty database; advance moves
// its clock. Run it with -race.
func HammerLimits(t *testing.T, stores []store.Store, advance func(time.Duration), seed uint64, runs int) {
	h := &limitHammer{T: t, stores: stores, advance: advance, total: runs, ended: map[string]int{}, now: map[string]int{}, most: map[string]int{}}
	h.limits = &limit.Queue{
		PerTenant: 4,
		Jobs: map[string]limit.Job{
			"plain": {Concurrency: 3},
			"one":   {Concurrency: 1, Keyed: true},
			"two":   {Concurrency: 2, Keyed: true},
		},
	}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	var wg sync.WaitGroup
	wg.Go(func() { h.feed(rand.New(rand.NewPCG(seed, 1))) })
	for i := range 3 * len(stores) {
		wg.Go(func() { h.work(i, rand.New(rand.NewPCG(seed, uint64(10+i)))) })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	reached := 0
	for gate, n := range h.most {
		if n == h.limitOf(gate) {
			reached++
		}
	}
	if reached == 0 {
		t.Error("no limit was ever reached: that shows nothing")
	}
	if n := len(h.ended); n != runs {
		t.Errorf("%d runs ended, %d were enqueued", n, runs)
	}
	for id, n := range h.ended {
		if n != 1 {
			t.Errorf("run %s ended %d times", id, n)
		}
	}
}

type limitHammer struct {
	*testing.T
	stores  []store.Store
	advance func(time.Duration)
	limits  *limit.Queue
	total   int
	done    atomic.Int64
	deaths  sync.RWMutex // held to die, and shared to claim

	mu         sync.Mutex
	generation int // how often all was lost
	ended      map[string]int
	now        map[string]int // that run, by gate, and by tenant
	most       map[string]int
}

func (h *limitHammer) limitOf(name string) int {
	kind, jobName, _ := limit.ParseGate(name)
	if kind == limit.KindJob || kind == limit.KindKey {
		return h.limits.Jobs[jobName].Concurrency
	}
	return h.limits.PerTenant
}

func (h *limitHammer) feed(r *rand.Rand) {
	for n := 0; n < h.total; {
		var batch []store.EnqueueParams
		for len(batch) < 1+r.IntN(20) && n < h.total {
			p := store.EnqueueParams{
				ID: uid(n), Queue: "q", MaxAttempts: 1000, Input: []byte("{}"), Tenant: []string{"a", "b", "c"}[r.IntN(3)],
				Job: []string{"plain", "one", "two", "free"}[r.IntN(4)], Priority: r.IntN(2),
			}
			switch p.Job {
			case "plain":
				p.Gate = limit.JobGate("plain")
			case "one", "two":
				p.Gate = limit.KeyGate(p.Job, fmt.Sprint(r.IntN(4)))
			}
			batch = append(batch, p)
			n++
		}
		if _, err := h.stores[r.IntN(len(h.stores))].Enqueue(h.Context(), batch); err != nil {
			h.Errorf("enqueue: %v", err)
			return
		}
	}
}

// work is a worker that now and then dies with what it holds, and comes back
// under another name.
func (h *limitHammer) work(i int, r *rand.Rand) {
	s := h.stores[i%len(h.stores)]
	for life := 0; int(h.done.Load()) < h.total && !h.Failed(); life++ {
		id := fmt.Sprintf("w%d-%d", i, life)
		if err := s.Register(h.Context(), store.RegisterParams{ID: id, Lease: lease}); err != nil {
			h.Errorf("register: %v", err)
			return
		}
		if h.live(s, id, r) {
			h.die()
		}
		if _, err := s.Reclaim(h.Context(), store.ReclaimParams{}); err != nil {
			h.Errorf("reclaim: %v", err)
			return
		}
	}
}

// die has every lease lapse, which ends what anyone is at.
func (h *limitHammer) die() {
	h.deaths.Lock()
	defer h.deaths.Unlock()
	h.mu.Lock()
	h.generation++
	h.now = map[string]int{}
	h.mu.Unlock()
	h.advance(lease)
}

// live works until the worker dies, or is gone, or all is done.
func (h *limitHammer) live(s store.Store, worker string, r *rand.Rand) (died bool) {
	var held []job.Run
	generation := -1
	for int(h.done.Load()) < h.total && !h.Failed() {
		gone, err := h.claim(s, worker, r, &held, &generation)
		if err != nil {
			h.Errorf("claim: %v", err)
			return false
		}
		if gone {
			return false
		}
		if r.IntN(150) == 0 {
			return true
		}
		r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		for n := r.IntN(len(held) + 1); n > 0; n-- {
			h.end(&held[0], generation) // what it does ends before the store hears of it
			h.settle(h.Context(), s, r, &held[0])
			held = held[1:]
		}
	}
	return false
}

// claim adds to what a worker holds, unless everything was lost since it last did.
func (h *limitHammer) claim(s store.Store, worker string, r *rand.Rand, held *[]job.Run, generation *int) (gone bool, err error) {
	h.deaths.RLock()
	defer h.deaths.RUnlock()
	h.mu.Lock()
	now := h.generation
	h.mu.Unlock()
	if *generation >= 0 && *generation != now {
		return true, nil
	}
	*generation = now
	res, err := s.Claim(h.Context(), store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{
		Queue: "q", Limit: 1 + r.IntN(6), Limits: h.limits, Recheck: r.IntN(200) == 0,
	}}})
	if err != nil || res.WorkerGone {
		return true, err
	}
	for i := range res.Runs {
		h.begin(&res.Runs[i])
	}
	*held = append(*held, res.Runs...)
	return false, nil
}

func (h *limitHammer) names(r *job.Run) []string {
	out := []string{"tenant " + r.Tenant}
	if r.Gate != "" {
		out = append(out, r.Gate)
	}
	return out
}

func (h *limitHammer) begin(r *job.Run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range h.names(r) {
		h.now[name]++
		h.most[name] = max(h.most[name], h.now[name])
		if want := h.limitOf(name); h.now[name] > want {
			h.Errorf("%d run at a time at %s, %d may", h.now[name], name, want)
		}
	}
}

func (h *limitHammer) end(r *job.Run, generation int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if generation != h.generation {
		return
	}
	for _, name := range h.names(r) {
		h.now[name]--
	}
}

func (h *limitHammer) settle(ctx context.Context, s store.Store, r *rand.Rand, run *job.Run) {
	p := store.SettleParams{Ref: refOf(*run), Outcome: job.Completed, To: job.Done}
	switch r.IntN(8) {
	case 0:
		p.Outcome, p.To = job.Retried, job.Ready
	case 1:
		p.Outcome, p.To = job.Shed, job.Ready
	}
	res, err := s.Settle(ctx, []store.SettleParams{p})
	if err != nil {
		h.Errorf("settle: %v", err)
		return
	}
	if res[0].Landed && p.To == job.Done {
		h.mu.Lock()
		h.ended[run.ID]++
		h.mu.Unlock()
		h.done.Add(1)
	}
}
