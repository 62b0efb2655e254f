package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qSetPause    = named("set_pause")
	qListPauses  = named("list_pauses")
	qOpenGate    = named("open_gate")
	qAge         = named("age")
	qForgetRates = named("forget_rates")
)

// SetPause implements store.Pauser. A claim that is under way when it is set may
// still take runs; one that begins after it does not.
func (s *Store) SetPause(ctx context.Context, p store.PauseParams) (changed bool, err error) {
	if err := p.Check(); err != nil {
		return false, err
	}
	var queues []string
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		changed, queues = false, nil
		args := []any{enc(string(p.Kind)), enc(p.Name), p.Resume, enc(p.By), enc(p.Reason)}
		err := s.run(ctx, tx, call{st: qSetPause, args: args, scan: func(*row) error {
			changed = true
			return nil
		}})
		if err != nil || !changed {
			return err
		}
		if err := s.audit(ctx, tx, p.Audit()); err != nil || !p.Resume {
			return err
		}
		switch p.Kind {
		case store.PauseQueue:
			queues = append(queues, p.Name)
		case store.PauseJob:
			gate := enc(limit.PauseGate(p.Name))
			err := s.run(ctx, tx, call{st: qOpenGate, args: []any{gate}, scan: func(r *row) error {
				queues = append(queues, r.text())
				return nil
			}})
			if err != nil {
				return err
			}
		}
		return s.notes.in(ctx, tx, queues)
	})
	if err != nil {
		return false, err
	}
	if changed && p.Resume {
		if p.Kind == store.PauseQueue {
			s.claims.forgetLanes(p.Name)
		}
		if p.Kind == store.PauseTenant {
			queues = []string{""}
		}
		s.hub.Post(slices.Values(queues))
	}
	return changed, nil
}

// ListPauses implements store.Pauser.
func (s *Store) ListPauses(ctx context.Context) (out []store.Pause, err error) {
	err = s.read(ctx, func(q queryer) error {
		out = nil
		return s.run(ctx, q, call{st: qListPauses, scan: func(r *row) error {
			out = append(out, store.Pause{
				Kind: store.PauseKind(r.text()), Name: r.text(), PausedAt: r.time(), ChangedAt: r.time(), By: r.text(), Reason: r.text(),
			})
			return nil
		}})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// agedLanes bounds the lanes of a queue that one ageing looks at.
const agedLanes = 5000

// Age implements store.Pauser.
func (s *Store) Age(ctx context.Context, p store.AgeParams) (aged int, err error) {
	if err := p.Check(); err != nil {
		return 0, err
	}
	if p.Limit == 0 {
		p.Limit = 1000
	}
	args := []any{enc(p.Queue), max(p.Waited.Milliseconds(), 1), p.Limit, int16(job.AgedPriority), agedLanes}
	err = s.write(ctx, func(q queryer) error {
		aged = 0
		return s.run(ctx, q, call{st: qAge, args: args, scan: func(r *row) error {
			aged++
			tenant := r.text()
			if r.text() != stateBlocked {
				s.claims.lower(p.Queue, tenant, job.AgedPriority, r.time())
			}
			return nil
		}})
	})
	return aged, err
}
