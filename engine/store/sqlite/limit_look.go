package sqlite

import (
	"github.com/jobrunner/runner/engine/limit"
)

// ready picks ready runs of the tenants that may have more, in rotation, each
// an even share of what is left.
func (l *limited) ready(p *picks) error {
	var tenants []string
	start := l.rotate.last[l.queue]
	at, wrapped := start, !start.set
	for len(tenants) < l.c.Left() && l.passed < maxPassed {
		tenant, found, err := l.nextTenant(at)
		if err != nil {
			return err
		}
		if found && wrapped && start.set && tenant > start.tenant {
			found = false // all the way round
		}
		switch {
		case found:
			at = cursor{tenant: tenant, set: true}
			n, err := l.allowed(tenant)
			if err != nil {
				return err
			}
			if n > 0 {
				tenants = append(tenants, tenant)
			} else if l.passed++; l.passed == maxPassed {
				// The next claim goes on from here.
				l.rotate.last[l.queue] = at
			}
		case wrapped:
			return l.shares(p, tenants)
		default:
			wrapped, at = true, cursor{}
		}
	}
	return l.shares(p, tenants)
}

func (l *limited) nextTenant(after cursor) (tenant string, found bool, err error) {
	q := l.use(qReadyFirstTenant)
	if after.set {
		q = l.use(qReadyNextTenant)
	}
	q.text(l.queue)
	if after.set {
		q.text(after.tenant)
	}
	if found = q.step(); found {
		tenant = q.colText(0)
	}
	return tenant, found, q.end()
}

func (l *limited) shares(p *picks, tenants []string) error {
	if len(tenants) == 0 {
		return nil
	}
	share := (l.c.Left() + len(tenants) - 1) / len(tenants)
	for _, tenant := range tenants {
		n, _ := l.c.Known(tenant)
		if _, err := l.tx.more(p, l.queue, tenant, min(share, n), 0); err != nil {
			return err
		}
	}
	return nil
}

// allowed is how many more runs a tenant may have.
func (l *limited) allowed(tenant string) (int, error) {
	if n, ok := l.c.Known(tenant); ok {
		return n, nil
	}
	running, state := int64(0), int64(0)
	if l.c.CountTenants() {
		q := l.use(qRunningOfTenant)
		q.text(l.queue)
		q.text(tenant)
		if q.step() {
			running = q.colInt(0)
		}
		if err := q.end(); err != nil {
			return 0, err
		}
	}
	if l.c.RateTenants() {
		var err error
		if state, err = l.rateState(l.rates, tenant); err != nil {
			return 0, err
		}
	}
	return l.c.Tenant(tenant, int(running), state), nil
}

// behind picks runs from behind a gate that has room, of each tenant in rotation.
func (l *limited) behind(p *picks, of map[string]string, gate string) error {
	room, known := l.c.Room(gate)
	if !known {
		if err := l.lookAt(gate); err != nil {
			return err
		}
		room, _ = l.c.Room(gate)
	}
	room = min(room, l.c.Left())
	if room <= 0 {
		return nil
	}
	last := l.rotate.behind[gate]
	at, wrapped := last, !last.set
	for met := 0; met < room && l.passed < maxPassed; {
		q := l.use(qBehindOfFirst)
		if at.set {
			q = l.use(qBehindOfNext)
		}
		q.text(gate)
		q.text(l.queue)
		if at.set {
			q.text(at.tenant)
		}
		found := q.step()
		tenant := ""
		if found {
			tenant = q.colText(0)
		}
		if err := q.end(); err != nil {
			return err
		}
		if found && wrapped && last.set && tenant > last.tenant {
			found = false
		}
		if !found {
			if wrapped {
				return nil
			}
			wrapped, at = true, cursor{}
			continue
		}
		at = cursor{tenant: tenant, set: true}
		n, err := l.allowed(tenant)
		if err != nil {
			return err
		}
		if n <= 0 {
			l.passed++
			continue
		}
		met++
		q = l.use(qBehindOfTenant)
		q.text(gate)
		q.text(l.queue)
		q.text(tenant)
		q.int(int64(min(room, n)))
		for q.step() {
			if err := p.add(&q); err != nil {
				q.end()
				return err
			}
			of[p.runs[len(p.runs)-1].ID] = gate
		}
		if err := q.end(); err != nil {
			return err
		}
	}
	return nil
}

// look finds out about the gates that candidates pass.
func (l *limited) look(of []limit.Candidate) error {
	gates, rates := l.c.Unknown(of)
	for _, g := range append(gates, rates...) {
		if err := l.lookAt(g); err != nil {
			return err
		}
	}
	return nil
}

func (l *limited) lookAt(gate string) error {
	if kind, jobName, _ := limit.ParseGate(gate); kind == limit.KindRate {
		state, err := l.rateState("job:"+jobName, "")
		if err == nil {
			l.c.JobRate(gate, state)
		}
		return err
	}
	q := l.use(qRunningAtGate)
	q.text(gate)
	q.int(int64(l.c.Concurrency(gate)))
	if q.step() {
		l.c.Running(gate, int(q.colInt(0)), formatUUID(q.s.ColumnRawBlob(1)))
	}
	return q.end()
}

func (t *tx) rateState(scope, tenant string) (state int64, err error) {
	q := t.use(qRateState)
	q.text(scope)
	q.text(tenant)
	if q.step() {
		state = q.colInt(0)
	}
	return state, q.end()
}
