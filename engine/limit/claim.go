package limit

import (
	"github.com/jobrunner/runner/engine/job"
)

// Claim decides one claim of one queue, round by round: the store brings
// candidates, tells what is running at the gates they pass, and asks for
// verdicts. It is not safe for concurrent use.
type Claim struct {
	limits  Queue
	pauses  Pauses
	now     int64
	left    int
	gates   map[string]*gate
	tenants map[string]int    // how many more of each
	queue   *rated            // nil without a rate of the queue
	byJob   map[string]*rated // by job
	byWhom  map[string]*rated // by tenant
	next    int64             // when a rate lets the next start, of those that were met; 0 is never
}

type gate struct {
	room   int
	holder string // a run that holds it
}

type rated struct {
	rate  Rate
	state int64
	taken int
}

// Pauses are the jobs and tenants that are paused.
type Pauses struct{ Jobs, Tenants map[string]bool }

// Any reports whether anything is paused.
func (p Pauses) Any() bool { return len(p.Jobs) > 0 || len(p.Tenants) > 0 }

// NewClaim begins a claim of at most n runs. now is the database's, in Unix
// nanoseconds.
func NewClaim(q *Queue, pauses Pauses, n int, now int64) *Claim {
	c := &Claim{pauses: pauses, now: now, left: n, gates: map[string]*gate{}, tenants: map[string]int{}, byJob: map[string]*rated{}, byWhom: map[string]*rated{}}
	if q != nil {
		c.limits = *q
	}
	return c
}

// Left is how many more the claim may take.
func (c *Claim) Left() int {
	if c.queue != nil {
		return min(c.left, c.queue.left(c.now))
	}
	return c.left
}

func (r *rated) left(now int64) int { return max(r.rate.Available(r.state, now)-r.taken, 0) }

// ByQueue reports whether the state of the queue's rate is wanted.
func (c *Claim) ByQueue() bool { return !c.limits.Rate.None() && !c.limits.ByTenant }

// QueueRate tells the state of the queue's rate.
func (c *Claim) QueueRate(state int64) {
	c.queue = &rated{rate: c.limits.Rate, state: state}
	c.late(c.queue)
}

// late notes when a rate that is spent lets the next start.
func (c *Claim) late(r *rated) {
	if r.left(c.now) > 0 {
		return
	}
	at := r.rate.Next(r.rate.Spend(r.state, c.now, r.taken), c.now)
	if c.next == 0 || at < c.next {
		c.next = at
	}
}

// Next is when a rate that this claim met at its end lets the next run start, in
// Unix nanoseconds; 0 if none was at its end.
func (c *Claim) Next() int64 { return c.next }

// CountTenants and RateTenants say what is wanted of each tenant.
func (c *Claim) CountTenants() bool { return c.limits.PerTenant > 0 }

// RateTenants reports whether the states of tenants' rates are wanted.
func (c *Claim) RateTenants() bool { return !c.limits.Rate.None() && c.limits.ByTenant }

// Tenant tells what a tenant has running over the fleet and the state of its
// rate, and answers how many more it may have. It is asked once of each.
func (c *Claim) Tenant(tenant string, running int, state int64) int {
	n, known := c.tenants[tenant]
	if known {
		return n
	}
	n = Unlimited
	if c.pauses.Tenants[tenant] {
		n = 0
	}
	if c.limits.PerTenant > 0 {
		n = min(n, c.limits.PerTenant-running)
	}
	if c.limits.TenantHere > 0 {
		n = min(n, c.limits.TenantHere-c.limits.Here[tenant])
	}
	if c.RateTenants() {
		r := &rated{rate: c.limits.Rate, state: state}
		c.byWhom[tenant] = r
		c.late(r)
		n = min(n, r.left(c.now))
	}
	c.tenants[tenant] = max(n, 0)
	return c.tenants[tenant]
}

// Known reports what is known of a tenant: how many more it may have.
func (c *Claim) Known(tenant string) (n int, ok bool) {
	n, ok = c.tenants[tenant]
	return n, ok
}

// Candidate is a waiting run. Behind is the gate it was set aside at, "" for a
// run that no gate has held up.
type Candidate struct {
	Run    *job.Run
	Behind string
}

// Unknown lists the gates of candidates that the store has to look at, each once:
// those of which it is to count the runs, and jobs of whose rates it is to read
// the state.
func (c *Claim) Unknown(of []Candidate) (gates, rates []string) {
	asked := map[string]bool{}
	want := func(to []string, name string) []string {
		if c.gates[name] != nil || asked[name] {
			return to
		}
		asked[name] = true
		return append(to, name)
	}
	for _, k := range of {
		if c.pauses.Jobs[k.Run.Job] {
			continue
		}
		g, l := c.limits.gate(k.Run.Job, k.Run.Gate)
		if g != "" {
			gates = want(gates, g)
		}
		if !l.Rate.None() {
			rates = want(rates, RateGate(k.Run.Job))
		}
	}
	return gates, rates
}

// Concurrency is the limit of a gate that counts runs; Unlimited for one that
// the manifest does not have any more.
func (c *Claim) Concurrency(gate string) int {
	kind, name, _ := ParseGate(gate)
	l := c.limits.Jobs[name]
	if l.Concurrency > 0 && (kind == KindJob && !l.Keyed || kind == KindKey && l.Keyed) {
		return l.Concurrency
	}
	return Unlimited
}

// Running tells how many runs a gate has running, and the id of one of them.
func (c *Claim) Running(name string, n int, holder string) {
	c.gates[name] = &gate{room: max(c.Concurrency(name)-n, 0), holder: holder}
}

// JobRate tells the state of the rate at a RateGate.
func (c *Claim) JobRate(name string, state int64) {
	_, jobName, _ := ParseGate(name)
	r := &rated{rate: c.limits.Jobs[jobName].Rate, state: state}
	c.byJob[jobName] = r
	c.gates[name] = &gate{room: r.rate.Available(state, c.now)}
}

// Room is how many runs may pass a gate that was set aside runs at; known says
// whether the store has still to tell what is running there (or its rate's state,
// for a RateGate).
func (c *Claim) Room(name string) (room int, known bool) {
	kind, jobName, _ := ParseGate(name)
	switch kind {
	case KindPause:
		if c.pauses.Jobs[jobName] {
			return 0, true
		}
		return Unlimited, true
	case KindRate:
		if c.limits.Jobs[jobName].Rate.None() {
			return Unlimited, true
		}
	case KindJob, KindKey:
		if c.Concurrency(name) == Unlimited {
			return Unlimited, true
		}
	}
	if g := c.gates[name]; g != nil {
		return g.room, true
	}
	return 0, false
}

// Opens is when a gate that is full may be looked at again, in Unix nanoseconds:
// 0 for one that opens when a run ends.
func (c *Claim) Opens(name string) int64 {
	kind, jobName, _ := ParseGate(name)
	r := c.byJob[jobName]
	if kind != KindRate || r == nil {
		return 0
	}
	return r.rate.Next(r.rate.Spend(r.state, c.now, r.taken), c.now)
}
