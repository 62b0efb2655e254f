package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qInsertWorker  = named("insert_worker")
	qLapseWorkers  = named("lapse_workers")
	qRenew         = named("renew")
	qSetQueues     = named("set_queues")
	qHeldProgress  = named("held_progress")
	qListWorkers   = named("list_workers")
	qLockWorker    = named("lock_worker")
	qDeleteWorkers = named("delete_workers")
)

// Register implements store.Workers.
func (s *Store) Register(ctx context.Context, p store.RegisterParams) error {
	if p.ID == "" || ms(p.Lease) == 0 {
		return store.Invalid("worker %q with a lease of %s: it needs an id and a lease", p.ID, p.Lease)
	}
	queues := encAll(p.Queues)
	return s.inTx(ctx, func(tx pgx.Tx) error {
		if p.Alone {
			if err := s.run(ctx, tx, call{st: qLapseWorkers}); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(ctx, s.text[qInsertWorker.index], enc(p.ID), enc(p.Host), int32(p.PID), queues, ms(p.Lease))
		if err == nil && tag.RowsAffected() == 0 {
			err = store.Invalid("a worker with the id %s is registered already", p.ID)
		}
		return err
	})
}

// Renew implements store.Workers.
func (s *Store) Renew(ctx context.Context, p store.RenewParams) (out store.RenewResult, err error) {
	if ms(p.Lease) == 0 {
		return out, store.Invalid("worker %s renews a lease of %s", p.Worker, p.Lease)
	}
	var ids []pgtype.UUID
	var claims []int64
	var which []int
	var strange []store.LostRun // what cannot be the worker's, whatever the database says
	for i, ref := range p.Held {
		id, ok := parseUUID(ref.RunID)
		if !ok {
			strange = append(strange, store.LostRun{Ref: ref})
			continue
		}
		claim := ref.Claim
		if ref.Worker != p.Worker {
			claim = -1 // no run has that ordinal
		}
		ids, claims, which = append(ids, id.param()), append(claims, claim), append(which, i)
	}
	err = s.write(ctx, func(q queryer) error {
		out = store.RenewResult{}
		err := s.run(ctx, q, call{st: qRenew, args: []any{enc(p.Worker), ms(p.Lease), ids, claims}, scan: func(r *row) error {
			out.Alive = r.bool()
			if r.vals[r.i] == nil {
				return nil
			}
			ref := p.Held[which[r.int()-1]]
			out.Lost = append(out.Lost, store.LostRun{Ref: ref, State: seenState(r.text())})
			return nil
		}})
		extras := renewExtras(p)
		if err != nil || !out.Alive || len(extras) == 0 {
			return err
		}
		return s.runAll(ctx, q, extras...)
	})
	if err != nil {
		return store.RenewResult{}, err
	}
	out.Lost = append(out.Lost, strange...)
	return out, nil
}

// renewExtras are what only some renewals carry.
func renewExtras(p store.RenewParams) []call {
	var calls []call
	if p.Queues != nil {
		calls = append(calls, call{st: qSetQueues, args: []any{enc(p.Worker), encAll(p.Queues)}})
	}
	var ids []pgtype.UUID
	var claims []int64
	var progress []*string
	for _, h := range p.Progress {
		id, ok := parseUUID(h.Ref.RunID)
		if !ok || h.Ref.Worker != p.Worker {
			continue
		}
		ids, claims, progress = append(ids, id.param()), append(claims, h.Ref.Claim), append(progress, jsonText(h.Progress))
	}
	if len(ids) > 0 {
		calls = append(calls, call{st: qHeldProgress, args: []any{enc(p.Worker), ids, claims, progress}})
	}
	return calls
}

func encAll(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = enc(s)
	}
	return out
}

// Deregister implements store.Workers. Locking the worker's row first waits for
// a claim of its that is not committed yet, whose runs are then handed back too.
func (s *Store) Deregister(ctx context.Context, worker string) error {
	var runs []job.Run
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		if err := s.run(ctx, tx, call{st: qLockWorker, args: []any{enc(worker)}}); err != nil {
			return err
		}
		var err error
		if runs, err = s.runsOf(ctx, tx, call{st: qRunsOf, args: []any{enc(worker)}}); err != nil {
			return err
		}
		var a endings
		var queues []string
		for _, r := range runs {
			orphans := int32(r.Orphans)
			a.add(ending{ref: refOf(r), outcome: job.Interrupted, to: job.Ready, uncounted: true, orphans: &orphans})
			queues = append(queues, r.Queue)
		}
		calls := []call{{st: qDeleteWorkers, args: []any{[]string{enc(worker)}}}}
		if len(runs) > 0 {
			settle := call{st: qSettle, args: a.args(), scan: func(r *row) error {
				runs[r.int()-1].RunAt = r.time()
				return nil
			}}
			calls = append([]call{settle}, calls...)
		}
		if err := s.runAll(ctx, tx, calls...); err != nil {
			return err
		}
		return s.notes.in(ctx, tx, queues)
	})
	if err == nil {
		s.readied(runs)
	}
	return err
}

func refOf(r job.Run) job.Ref { return job.Ref{RunID: r.ID, Worker: r.Worker, Claim: r.Claims} }

// ListWorkers implements store.Workers.
func (s *Store) ListWorkers(ctx context.Context) (out []store.Worker, err error) {
	err = s.read(ctx, func(q queryer) error {
		out = nil
		rows, err := q.Query(ctx, s.text[qListWorkers.index])
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(rows pgx.CollectableRow) (w store.Worker, err error) {
			err = rows.Scan(&w.ID, &w.Host, &w.PID, &w.Queues, &w.StartedAt, &w.RenewedAt, &w.ExpiresAt, &w.Running)
			w.ID, w.Host = dec([]byte(w.ID)), dec([]byte(w.Host))
			for i, q := range w.Queues {
				w.Queues[i] = dec([]byte(q))
			}
			w.StartedAt, w.RenewedAt, w.ExpiresAt = w.StartedAt.UTC(), w.RenewedAt.UTC(), w.ExpiresAt.UTC()
			return w, err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
