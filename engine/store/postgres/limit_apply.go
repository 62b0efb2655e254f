package postgres

import (
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/limit"
)

// take begins the runs of a round, and those that are refused.
func (l *limited) take(v limit.Verdicts) error {
	all := append(slices.Clone(v.Take), v.Refuse...)
	if len(all) == 0 {
		return nil
	}
	ids, gates, counted := make([]pgtype.UUID, len(all)), make([]*string, len(all)), make([]bool, len(all))
	for i, t := range all {
		ids[i], gates[i], counted[i] = idParam(t.Run.ID), encOrNull(t.Gate), l.c.CountTenants() && t.Holder == ""
	}
	begun := map[string]time.Time{}
	err := l.run(call{st: qLimitedTake, args: []any{enc(l.worker), ids, gates, counted}, scan: func(r *row) error {
		id := r.uuid()
		begun[id] = r.time()
		return nil
	}})
	if err != nil {
		return err
	}
	for _, t := range all {
		at, ok := begun[t.Run.ID]
		if !ok {
			continue // it cannot be: it was locked
		}
		r := *t.Run
		r.Begin(l.worker, at)
		l.runs = append(l.runs, r)
		if t.Behind != "" {
			l.moved = append(l.moved, served{t.Behind, enc(t.Run.Tenant)})
		}
		if t.Holder != "" {
			if l.busy == nil {
				l.busy = map[string]string{}
			}
			l.busy[t.Run.ID] = t.Holder
		}
	}
	return nil
}

// laneAside is the runs of a job and a tenant, which all pass the gate.
type laneAside struct{ gate, tenant, job string }

// aside sets runs aside behind gates that are full, and with them what else
// would find the same gates full.
func (l *limited) aside(of []limit.Verdict) error {
	if len(of) == 0 {
		return nil
	}
	ids, gates := make([]pgtype.UUID, len(of)), make([]string, len(of))
	full, lanes, timed := map[string]bool{}, map[laneAside]bool{}, map[string]int64{}
	for i, v := range of {
		ids[i], gates[i] = idParam(v.Run.ID), enc(v.Gate)
		if at := l.c.Opens(v.Gate); at != 0 {
			timed[v.Gate] = at
		}
		if v.Gate == v.Run.Gate {
			full[v.Gate] = true
		} else if kind, _, _ := limit.ParseGate(v.Gate); kind != limit.KindKey {
			lanes[laneAside{v.Gate, v.Run.Tenant, v.Run.Job}] = true
		}
	}
	queue := enc(l.ql.Queue)
	calls := []call{{st: qSetAside, args: []any{ids, gates}}}
	for gate := range full {
		calls = append(calls, call{st: qSetMoreAside, args: []any{enc(gate), queue, asideChunk}})
	}
	for k := range lanes {
		calls = append(calls, call{st: qSetLaneAside, args: []any{enc(k.gate), queue, enc(k.tenant), enc(k.job), asideChunk}})
	}
	if len(timed) > 0 {
		calls = append(calls, l.reopen(timed))
	}
	return l.run(calls...)
}

// reopen has gates be looked behind again, each at its time in ns, 0 for at once.
func (l *limited) reopen(at map[string]int64) call {
	gates, times := make([]string, 0, len(at)), make([]*int64, 0, len(at))
	for _, gate := range slices.Sorted(maps.Keys(at)) {
		gates = append(gates, enc(gate))
		if ns := at[gate]; ns > 0 {
			ms := (ns + 1e6 - 1) / 1e6
			times = append(times, &ms)
		} else {
			times = append(times, nil)
		}
	}
	return call{st: qReopen, args: []any{enc(l.ql.Queue), gates, times}}
}

// finish has the gates that were looked behind stay open while there is room for
// what waits there, and writes down what rates have spent.
func (l *limited) finish() error {
	var closed []int64
	again := map[string]int64{}
	for _, gate := range l.gates {
		room, known := l.c.Room(gate)
		if !known {
			continue // the claim was full before it came here
		}
		closed = append(closed, l.opened[gate]...)
		if opens := l.c.Opens(gate); room > 0 {
			again[gate] = 0
		} else if opens != 0 {
			again[gate] = opens
		}
	}
	var calls []call
	if len(closed) > 0 {
		calls = append(calls, call{st: qCloseOpenings, args: []any{closed}})
	}
	if len(again) > 0 {
		calls = append(calls, l.reopen(again))
	}
	if spent := l.c.Spent(); len(spent) > 0 {
		scopes, tenants, states := make([]string, len(spent)), make([]string, len(spent)), make([]int64, len(spent))
		for i, s := range spent {
			scopes[i], tenants[i], states[i] = enc(l.scope), enc(s.Tenant), s.State
			if s.Job != "" {
				scopes[i] = enc("job:" + s.Job)
			}
		}
		calls = append(calls, call{st: qSpendRates, args: []any{scopes, tenants, states}})
	}
	calls = append(calls, call{st: qNextOpening, args: []any{enc(l.ql.Queue)}, scan: func(r *row) error {
		if at := r.time(); !at.IsZero() && (l.nextDue.IsZero() || at.Before(l.nextDue)) {
			l.nextDue = at
		}
		return nil
	}})
	return l.run(calls...)
}
