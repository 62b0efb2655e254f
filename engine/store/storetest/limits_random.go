package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

// RandomLimits makes random ops under limits and holds every claim to two sides:
// that it took nothing it should not have, and, when it says that there is no
// more for now, that it left nothing it could have taken. The seed decides
// everything. The database's clock must stand still between two Advances.
func RandomLimits(t *testing.T, open Factory, seed uint64, ops int) {
	e := newEnv(t, open)
	x := &limitModel{
		env: e, rand: rand.New(rand.NewPCG(seed, 1)), runs: map[string]*limitRun{}, paused: map[store.PauseKind]map[string]bool{},
		rates: map[string]int64{}, limits: []*limit.Queue{nil, nil}, inGate: map[string]int{}, counted: map[string]int{},
	}
	for kind := range map[store.PauseKind]bool{store.PauseQueue: true, store.PauseJob: true, store.PauseTenant: true} {
		x.paused[kind] = map[string]bool{}
	}
	done := false
	defer func() {
		if !done {
			t.Logf("seed %d, after %d ops", seed, x.n)
		}
	}()
	x.newLimits()
	x.newWorker()
	for x.n = range ops {
		x.step()
	}
	if x.took == 0 || x.held == 0 {
		t.Fatalf("%d runs were taken and %d held up: that shows nothing", x.took, x.held)
	}
	done = true
}

type limitModel struct {
	*env
	rand    *rand.Rand
	n       int
	took    int
	held    int
	runs    map[string]*limitRun
	worker  string
	workers int
	paused  map[store.PauseKind]map[string]bool
	rates   map[string]int64 // by queue, and tenant or job
	limits  []*limit.Queue   // of q0 and q1
	inGate  map[string]int
	counted map[string]int // by queue and tenant
}

type limitRun struct {
	queue, job, tenant, own string
	due                     time.Time
	running                 *job.Run
	gate                    string // that it holds
	counted                 bool
}

var limitJobs = []string{"plain", "key", "rated", "free"}

func (x *limitModel) pick(of ...string) string { return of[x.rand.IntN(len(of))] }

func (x *limitModel) newLimits() {
	for i := range x.limits {
		q := &limit.Queue{Jobs: map[string]limit.Job{
			"plain": {Concurrency: 1 + x.rand.IntN(4)},
			"key":   {Concurrency: 1 + x.rand.IntN(2), Keyed: true},
			"rated": {Rate: limit.Rate{Limit: 3, Per: 30 * time.Second}},
		}}
		if i == 1 {
			q.PerTenant = 3
			q.Rate, q.ByTenant = limit.Rate{Limit: 4, Per: 20 * time.Second}, true
		} else if x.rand.IntN(2) == 0 {
			q.Rate = limit.Rate{Limit: 10, Per: 20 * time.Second}
		}
		x.limits[i] = q
	}
}

func (x *limitModel) newWorker() {
	x.workers++
	x.worker = fmt.Sprintf("w%d", x.workers)
	x.register(x.worker)
}

func (x *limitModel) step() {
	switch n := x.rand.IntN(100); {
	case n < 30:
		x.add()
	case n < 60:
		x.claimSome()
	case n < 86:
		x.end()
	case n < 90:
		x.cancelOne()
	case n < 94:
		x.setPauses()
	case n < 95:
		x.lose()
	case n < 96:
		x.deregister(x.worker)
		for _, r := range x.runs {
			if r.running != nil {
				x.free(r, x.now())
			}
		}
		x.newWorker()
	default:
		x.db.Advance(time.Duration(x.rand.IntN(6)) * time.Second)
		if _, err := x.db.Renew(x.ctx, store.RenewParams{Worker: x.worker, Lease: lease}); err != nil {
			x.Fatal(err)
		}
	}
}

func (x *limitModel) add() {
	if len(x.runs) > 500 {
		return // more would only take longer
	}
	var batch []store.EnqueueParams
	now := x.now()
	for range 1 + x.rand.IntN(12) {
		p := store.EnqueueParams{
			Queue: x.pick("q0", "q1"), Job: x.pick(limitJobs...), Tenant: x.pick("", "a", "b", "c"), Priority: x.rand.IntN(3),
			Delay: time.Duration(max(0, x.rand.IntN(8)-5)) * 2 * time.Second,
		}
		switch {
		case p.Job == "plain" && x.rand.IntN(10) > 0:
			p.Gate = limit.JobGate("plain")
		case p.Job == "key" && x.rand.IntN(10) > 0:
			p.Gate = limit.KeyGate("key", x.pick("1", "2", "3", "4", "5"))
		}
		batch = append(batch, p)
	}
	for i, r := range x.enqueue(batch...) {
		p := batch[i]
		x.runs[r.ID] = &limitRun{queue: p.Queue, job: p.Job, tenant: p.Tenant, own: p.Gate, due: now.Add(p.Delay)}
	}
}

// gateOf is the gate that a run passes under limits.
func gateOf(r *limitRun) string {
	switch {
	case r.job == "plain":
		return limit.JobGate("plain")
	case r.job == "key" && r.own == "":
		return limit.KeyGate("key", "")
	case r.job == "key":
		return r.own
	}
	return ""
}

// may reports whether the run could be claimed under q at now.
func (x *limitModel) may(r *limitRun, q *limit.Queue, now time.Time) bool {
	if r.running != nil || r.due.After(now) || x.paused[store.PauseQueue][r.queue] || x.paused[store.PauseJob][r.job] || x.paused[store.PauseTenant][r.tenant] {
		return false
	}
	return x.overdrawn(r, q, now) == ""
}

// overdrawn names the limit that has no room for one more like r.
func (x *limitModel) overdrawn(r *limitRun, q *limit.Queue, now time.Time) string {
	gate := gateOf(r)
	l := q.Jobs[r.job]
	if l.Concurrency > 0 && x.inGate[gate] >= l.Concurrency {
		return "gate " + gate
	}
	if q.PerTenant > 0 && x.counted[r.queue+" "+r.tenant] >= q.PerTenant {
		return "tenant " + r.tenant
	}
	if !l.Rate.None() && l.Rate.Available(x.rates["job "+r.job], now.UnixNano()) == 0 {
		return "rate of job " + r.job
	}
	if !q.Rate.None() && q.Rate.Available(x.rates[x.rateOf(r, q)], now.UnixNano()) == 0 {
		return "rate of queue " + r.queue
	}
	return ""
}

func (x *limitModel) rateOf(r *limitRun, q *limit.Queue) string {
	if q.ByTenant {
		return "queue " + r.queue + " " + r.tenant
	}
	return "queue " + r.queue
}

func (x *limitModel) claimSome() { x.claimOf(x.rand.IntN(2), 1+x.rand.IntN(6)) }

func (x *limitModel) claimOf(i, want int) {
	queue, q := fmt.Sprintf("q%d", i), x.limits[i]
	for range 100 {
		res := x.claimAll(x.worker, store.QueueLimit{Queue: queue, Limit: want, Limits: q})
		if res.WorkerGone {
			x.Fatal("the worker is gone")
		}
		for n := range res.Runs {
			x.taken(&res.Runs[n], q, res.Now)
		}
		if want -= len(res.Runs); want == 0 {
			return
		}
		if len(res.Runs) > 0 || !res.NextDue.IsZero() && !res.NextDue.After(res.Now) {
			continue
		}
		for id, r := range x.runs {
			if r.queue != queue || r.running != nil || r.due.After(res.Now) {
				continue
			}
			if x.may(r, q, res.Now) {
				x.Fatalf("a claim of %d more from %s left run %s (%+v) and is due at %s, now %s", want, queue, id, r, res.NextDue, res.Now)
			}
			x.held++
		}
		return
	}
	x.Fatal("a claim is due again and again")
}

func (x *limitModel) taken(got *job.Run, q *limit.Queue, now time.Time) {
	r := x.runs[got.ID]
	switch {
	case r == nil:
		x.Fatalf("run %s was claimed, and is not there", got.ID)
	case !x.may(r, q, now):
		x.Fatalf("run %s (%+v) was claimed beyond: %s", got.ID, r, x.overdrawn(r, q, now))
	}
	x.took++
	run := *got
	r.running, r.gate, r.counted = &run, gateOf(r), q.PerTenant > 0
	x.inGate[r.gate]++
	if r.counted {
		x.counted[r.queue+" "+r.tenant]++
	}
	if l := q.Jobs[r.job]; !l.Rate.None() {
		x.rates["job "+r.job] = l.Rate.Spend(x.rates["job "+r.job], now.UnixNano(), 1)
	}
	if !q.Rate.None() {
		key := x.rateOf(r, q)
		x.rates[key] = q.Rate.Spend(x.rates[key], now.UnixNano(), 1)
	}
}

// free ends a run's claim; it is due again at due.
func (x *limitModel) free(r *limitRun, due time.Time) {
	if r.running != nil {
		x.inGate[r.gate]--
		if r.counted {
			x.counted[r.queue+" "+r.tenant]--
		}
	}
	r.running, r.gate, r.counted, r.due = nil, "", false, due
}

// some answers runs that pass a filter, in an order that the seed decides.
func (x *limitModel) some(filter func(*limitRun) bool) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(x.runs)) {
		if filter(x.runs[id]) {
			out = append(out, id)
		}
	}
	x.rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (x *limitModel) end() {
	running := x.some(func(r *limitRun) bool { return r.running != nil })
	for _, id := range running[:min(len(running), 1+x.rand.IntN(4))] {
		r := x.runs[id]
		now := x.now()
		switch x.rand.IntN(5) {
		case 0:
			x.settle(store.SettleParams{Ref: refOf(*r.running), Outcome: job.Shed, To: job.Ready})
			x.free(r, now)
		case 1:
			x.settle(store.SettleParams{Ref: refOf(*r.running), Outcome: job.Deferred, To: job.Delayed, Delay: 3 * time.Second})
			x.free(r, now.Add(3*time.Second))
		default:
			x.finish(*r.running, job.Completed, job.Done)
			x.gone(id)
		}
	}
}

func (x *limitModel) cancelOne() {
	holders := x.rand.IntN(2) == 0 // few of many
	live := x.some(func(r *limitRun) bool { return !holders || r.gate != "" })
	if len(live) == 0 {
		return
	}
	if _, err := x.db.Cancel(x.ctx, store.CancelParams{ID: live[0]}); err != nil {
		x.Fatal(err)
	}
	i := 0
	if x.runs[live[0]].queue == "q1" {
		i = 1
	}
	x.gone(live[0])
	if holders {
		x.claimOf(i, 50) // or the next end tells claims what this should have
	}
}

func (x *limitModel) setPauses() {
	kind := []store.PauseKind{store.PauseQueue, store.PauseJob, store.PauseTenant}[x.rand.IntN(3)]
	name := map[store.PauseKind]string{
		store.PauseQueue: x.pick("q0", "q1"), store.PauseJob: x.pick(limitJobs...), store.PauseTenant: x.pick("", "a", "b", "c"),
	}[kind]
	paused := x.paused[kind][name]
	x.setPause(store.PauseParams{Kind: kind, Name: name, Resume: paused}, true)
	x.paused[kind][name] = !paused
}

// lose has the worker's lease lapse, and takes its runs back.
func (x *limitModel) lose() {
	x.db.Advance(lease)
	x.newWorker()
	if _, err := x.db.Reclaim(x.ctx, store.ReclaimParams{}); err != nil {
		x.Fatal(err)
	}
	for id, r := range x.runs {
		if r.running == nil {
			continue
		}
		if x.get(id).State.Terminal() {
			x.gone(id)
			continue
		}
		x.free(r, x.now())
	}
}

func (x *limitModel) gone(id string) {
	x.free(x.runs[id], time.Time{})
	delete(x.runs, id)
}
