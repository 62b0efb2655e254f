package postgres

import (
	"github.com/jobrunner/runner/engine/limit"
)

// share is the most runs of a tenant to pick, from behind a gate or, if that is
// "", of those that are ready.
type share struct {
	gate, tenant string
	n            int
}

// tenants says how many runs of which tenants to look at, among the ready ones and
// behind the gates that may have room.
func (l *limited) tenants() (ready, behind []share, err error) {
	queue := enc(l.ql.Queue)
	var scope *string
	if l.c.RateTenants() {
		enced := enc(l.scope)
		scope = &enced
	}
	var known []string // gates to ask about
	for _, g := range l.gates {
		if _, ok := l.c.Room(g); !ok {
			known = append(known, g)
		}
	}
	if len(known) > 0 {
		var gates, rates []string
		for _, g := range known {
			if kind, _, _ := limit.ParseGate(g); kind == limit.KindRate {
				rates = append(rates, g)
			} else {
				gates = append(gates, g)
			}
		}
		if err := l.look(gates, rates); err != nil {
			return nil, nil, err
		}
	}
	tell := func(r *row, tenant string) int {
		running, state := r.int(), r.int()
		return l.c.Tenant(tenant, int(running), state)
	}
	most := min(2*l.c.Left()+16, maxPassed)
	met, allowed := 0, []share{}
	calls := []call{{
		st: qLimitedTenants, args: []any{queue, l.after, most, scope, l.c.CountTenants()},
		scan: func(r *row) error {
			met++
			tenant := r.text()
			if n := tell(r, tenant); n > 0 {
				allowed = append(allowed, share{tenant: tenant, n: n})
			} else {
				l.passed++
			}
			l.last = tenant
			return nil
		},
	}}
	var gates []string
	var afters []*string
	rooms := map[string]int{}
	for _, g := range l.gates {
		if room, _ := l.c.Room(g); room > 0 {
			gates, afters, rooms[g] = append(gates, enc(g)), append(afters, l.s.behind.get(g)), min(room, l.c.Left())
		}
	}
	if len(gates) > 0 {
		calls = append(calls, call{
			st: qBehindTenants, args: []any{queue, gates, afters, scope, l.c.CountTenants(), maxBehindTenants},
			scan: func(r *row) error {
				gate, tenant := r.text(), r.text()
				if n := tell(r, tenant); n > 0 {
					behind = append(behind, share{gate, tenant, min(n, rooms[gate])})
				}
				return nil
			},
		})
	}
	before := l.last
	if err := l.run(calls...); err != nil {
		return nil, nil, err
	}
	if met == most && len(allowed) == 0 && l.passed < maxPassed {
		// All of them may have no more: go on after them.
		at := enc(l.last)
		l.after, l.more = &at, true
	}
	l.crowded = l.crowded || l.passed >= maxPassed
	if !l.more {
		l.last = before
	}
	if left := l.c.Left(); len(allowed) > left {
		allowed = allowed[:left]
	}
	for i := range allowed {
		allowed[i].n = min(allowed[i].n, (l.c.Left()+len(allowed)-1)/len(allowed))
	}
	return allowed, behind, nil
}

// pick reads and locks candidates. full says that some share was used up, so that
// there may be more.
func (l *limited) pick(ready, behind []share) (out []limit.Candidate, full bool, err error) {
	queue := enc(l.ql.Queue)
	got := map[share]int{}
	scan := func(r *row) error {
		gate := r.text()
		run, err := r.run()
		if err != nil {
			return err
		}
		run.Input = r.bytes()
		got[share{gate: gate, tenant: run.Tenant}]++
		out = append(out, limit.Candidate{Run: &run, Behind: gate})
		return nil
	}
	column := func(of []share) (gates, tenants []string, most []int32) {
		for _, s := range of {
			gates, tenants, most = append(gates, enc(s.gate)), append(tenants, enc(s.tenant)), append(most, int32(s.n))
		}
		return gates, tenants, most
	}
	var calls []call
	if len(ready) > 0 {
		_, tenants, most := column(ready)
		calls = append(calls, call{st: qLimitedReady, args: []any{queue, tenants, most}, scan: scan})
	}
	if len(behind) > 0 {
		gates, tenants, most := column(behind)
		calls = append(calls, call{st: qLimitedBehind, args: []any{queue, gates, tenants, most}, scan: scan})
	}
	if err := l.run(calls...); err != nil {
		return nil, false, err
	}
	for _, s := range append(ready, behind...) {
		full = full || got[share{gate: s.gate, tenant: s.tenant}] >= s.n
	}
	return out, full, nil
}

// look finds out about gates: how many run there, or the state of a rate.
func (l *limited) look(gates, rates []string) error {
	var calls []call
	if len(gates) > 0 {
		stored, most := make([]string, len(gates)), make([]int32, len(gates))
		for i, g := range gates {
			stored[i], most[i] = enc(g), int32(l.c.Concurrency(g))
		}
		calls = append(calls, call{st: qAtGates, args: []any{stored, most}, scan: func(r *row) error {
			gate, n := r.text(), r.int()
			l.c.Running(gate, int(n), r.uuid())
			return nil
		}})
	}
	if len(rates) > 0 {
		scopes := make([]string, len(rates))
		for i, g := range rates {
			_, name, _ := limit.ParseGate(g)
			scopes[i] = enc("job:" + name)
		}
		calls = append(calls, call{st: qRateStates, args: []any{scopes}, scan: func(r *row) error {
			scope := r.text()
			l.c.JobRate(limit.RateGate(scope[len("job:"):]), r.int())
			return nil
		}})
	}
	if len(calls) == 0 {
		return nil
	}
	return l.run(calls...)
}
