package limit

// Verdict is what becomes of a candidate.
type Verdict struct {
	Candidate
	// Gate is the one that a run that is taken now holds ("" for none), or that
	// one that is set aside waits behind.
	Gate string
	// Holder is the run that holds the key of one that is refused.
	Holder string
}

// Verdicts are those of one round. A candidate that is in none of them is left
// as it is.
type Verdicts struct {
	Take   []Verdict
	Aside  []Verdict // another round may find what they hid
	Refuse []Verdict
	Served string // the tenant whose turn was the last
}

// Decide deals out what is left over tenants, in turns: each turn is the tenant's
// next candidate that may run. byTenant holds each tenant's in their order, all
// told of by Tenant, Running and JobRate; order is the tenants' own.
func (c *Claim) Decide(byTenant map[string][]Candidate, order []string) (v Verdicts) {
	open := append([]string(nil), order...)
	at := map[string]int{}
	for len(open) > 0 {
		still := open[:0]
		for _, tenant := range open {
			if c.Left() <= 0 {
				return v
			}
			if c.turn(tenant, byTenant[tenant], at, &v) {
				v.Served = tenant
				still = append(still, tenant)
			}
		}
		open = still
	}
	return v
}

// turn gives a tenant one run, and reports whether it may have another turn.
func (c *Claim) turn(tenant string, of []Candidate, at map[string]int, v *Verdicts) bool {
	for at[tenant] < len(of) {
		if n, ok := c.tenants[tenant]; ok && n <= 0 {
			return false
		}
		k := of[at[tenant]]
		at[tenant]++
		if c.pauses.Jobs[k.Run.Job] {
			c.aside(k, PauseGate(k.Run.Job), v)
			continue
		}
		name, l := c.limits.gate(k.Run.Job, k.Run.Gate)
		g := c.gates[name]
		if name != "" && (g == nil || g.room <= 0) {
			// A run that was claimed before may have begun: what it recorded would be
			// left half done.
			if l.Fail && k.Run.Claims == 0 && g != nil && g.holder != "" {
				v.Refuse = append(v.Refuse, Verdict{Candidate: k, Holder: g.holder})
				c.left--
				return true
			}
			c.aside(k, name, v)
			continue
		}
		if !l.Rate.None() {
			rate := RateGate(k.Run.Job)
			r := c.gates[rate]
			if r == nil || r.room <= 0 {
				c.aside(k, rate, v)
				continue
			}
			r.room--
			c.byJob[k.Run.Job].taken++
		}
		c.take(k, name, g, v)
		return true
	}
	return false
}

func (c *Claim) aside(k Candidate, gate string, v *Verdicts) {
	if k.Behind == gate {
		return
	}
	v.Aside = append(v.Aside, Verdict{Candidate: k, Gate: gate})
}

func (c *Claim) take(k Candidate, name string, g *gate, v *Verdicts) {
	v.Take = append(v.Take, Verdict{Candidate: k, Gate: name})
	c.left--
	if g != nil {
		g.room--
		g.holder = k.Run.ID
	}
	if c.queue != nil {
		c.queue.taken++
		c.late(c.queue)
	}
	tenant := k.Run.Tenant
	if n, ok := c.tenants[tenant]; ok && n != Unlimited {
		c.tenants[tenant] = n - 1
	}
	if r := c.byWhom[tenant]; r != nil {
		r.taken++
		c.late(r)
	}
}

// Spent is the new state of a rate.
type Spent struct {
	Job    string // of a job's rate; "" for the queue's
	Tenant string // of the queue's rate by tenant
	State  int64
}

// Spent lists the rates that the claim took from.
func (c *Claim) Spent() (out []Spent) {
	if c.queue != nil && c.queue.taken > 0 {
		out = append(out, Spent{State: c.queue.spent(c.now)})
	}
	for name, r := range c.byJob {
		if r.taken > 0 {
			out = append(out, Spent{Job: name, State: r.spent(c.now)})
		}
	}
	for name, r := range c.byWhom {
		if r.taken > 0 {
			out = append(out, Spent{Tenant: name, State: r.spent(c.now)})
		}
	}
	return out
}

func (r *rated) spent(now int64) int64 { return r.rate.Spend(r.state, now, r.taken) }
