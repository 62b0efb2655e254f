package sqlite

import (
	"github.com/jobrunner/runner/engine/limit"
)

// take begins a run under the gate of its verdict.
func (l *limited) take(v limit.Verdict, seq int64) error {
	q := l.use(qClaimLimited)
	q.int(seq)
	q.text(l.worker)
	q.int(l.now)
	q.textOrNull(v.Gate)
	q.bool(l.counted && v.Holder == "")
	if err := q.exec(); err != nil {
		return err
	}
	if v.Behind != "" {
		l.rotate.served(v.Behind, v.Run.Tenant)
	}
	r := *v.Run
	r.Begin(l.worker, fromMS(l.now))
	l.runs = append(l.runs, r)
	return nil
}

// lane is the runs of a job and a tenant, which all pass the gate.
type lane struct{ gate, tenant, job string }

// aside sets runs aside behind gates that are full, and with them what else
// would find the same gates full.
func (l *limited) aside(of []limit.Verdict, seqs map[string]int64) error {
	full := map[string]bool{}
	lanes := map[lane]bool{}
	for _, v := range of {
		q := l.use(qSetAside)
		q.int(seqs[v.Run.ID])
		q.text(v.Gate)
		if err := q.exec(); err != nil {
			return err
		}
		if at := l.c.Opens(v.Gate); at != 0 {
			if err := l.open(l.queue, v.Gate, (at+1e6-1)/1e6); err != nil {
				return err
			}
		}
		if v.Gate == v.Run.Gate {
			full[v.Gate] = true
		} else if kind, _, _ := limit.ParseGate(v.Gate); kind != limit.KindKey {
			lanes[lane{v.Gate, v.Run.Tenant, v.Run.Job}] = true
		}
	}
	for k := range lanes {
		q := l.use(qSetLaneAside)
		q.text(k.gate)
		q.text(l.queue)
		q.text(k.tenant)
		q.text(k.job)
		q.int(asideChunk)
		if err := q.exec(); err != nil {
			return err
		}
	}
	for gate := range full {
		q := l.use(qSetMoreAside)
		q.text(gate)
		q.text(l.queue)
		q.int(asideChunk)
		if err := q.exec(); err != nil {
			return err
		}
	}
	return nil
}

// finish has the gates that were looked behind stay open while there is room for
// what waits there, and writes down what rates have spent.
func (l *limited) finish() error {
	for _, gate := range l.gates {
		room, known := l.c.Room(gate)
		if !known {
			continue // the claim was full before it came here
		}
		opens := l.c.Opens(gate)
		if room > 0 {
			opens = l.now * 1e6
		}
		if err := l.reopen(gate, opens); err != nil {
			return err
		}
	}
	for _, s := range l.c.Spent() {
		scope := l.rates
		if s.Job != "" {
			scope = "job:" + s.Job
		}
		q := l.use(qSetRate)
		q.text(scope)
		q.text(s.Tenant)
		q.int(s.State)
		if err := q.exec(); err != nil {
			return err
		}
	}
	return nil
}

// reopen decides on a gate that was looked behind: opens is when it may be worth
// it again, in ns, 0 when a run there has ended.
func (l *limited) reopen(gate string, opens int64) error {
	waits := opens != 0
	if waits {
		var err error
		if waits, err = l.waits(gate, l.queue); err != nil {
			return err
		}
	}
	if waits {
		return l.open(l.queue, gate, (opens+1e6-1)/1e6)
	}
	q := l.use(qCloseGate)
	q.text(l.queue)
	q.text(gate)
	return q.exec()
}
