package sqlite

import (
	"context"
	"encoding/json"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qInsertWorker = named("insert_worker")
	qLapseWorkers = named("lapse_workers")
	qRenewWorker  = named("renew_worker")
	qSetQueues    = named("set_queues")
	qHeldProgress = named("held_progress")
	qDeleteWorker = named("delete_worker")
	qHeldState    = named("held_state")
	qListWorkers  = named("list_workers")
	qRunsOfWorker = named("runs_of_worker")
)

// Register implements store.Workers.
func (s *Store) Register(ctx context.Context, p store.RegisterParams) error {
	if p.ID == "" || p.Lease <= 0 {
		return store.Invalid("worker %q with a lease of %s: it needs an id and a lease", p.ID, p.Lease)
	}
	queues, err := json.Marshal(p.Queues)
	if err != nil {
		return err
	}
	return s.w.do(ctx, func(tx *tx) error {
		if p.Alone {
			q := tx.use(qLapseWorkers)
			q.int(tx.now)
			if err := q.exec(); err != nil {
				return err
			}
		}
		q := tx.use(qInsertWorker)
		q.text(p.ID)
		q.text(p.Host)
		q.int(int64(p.PID))
		q.text(string(queues))
		q.int(tx.now)
		q.int(tx.now + p.Lease.Milliseconds())
		if err := q.exec(); err != nil {
			return err
		}
		if tx.db.Changes() == 0 {
			return store.Invalid("a worker with the id %s is registered already", p.ID)
		}
		return nil
	})
}

// Renew implements store.Workers.
func (s *Store) Renew(ctx context.Context, p store.RenewParams) (store.RenewResult, error) {
	if p.Lease <= 0 {
		return store.RenewResult{}, store.Invalid("worker %s renews a lease of %s", p.Worker, p.Lease)
	}
	var out store.RenewResult
	err := s.w.do(ctx, func(tx *tx) error {
		out = store.RenewResult{}
		q := tx.use(qRenewWorker)
		q.text(p.Worker)
		q.int(tx.now)
		q.int(tx.now + p.Lease.Milliseconds())
		if err := q.exec(); err != nil {
			return err
		}
		out.Alive = tx.db.Changes() == 1
		for _, ref := range p.Held {
			state, held, err := tx.heldState(ref, p.Worker)
			if err != nil {
				return err
			}
			if !held && ref.Worker == p.Worker {
				taken, err := tx.takenByCancel(ref)
				if err != nil {
					return err
				}
				if taken {
					state = job.Cancelled
				}
			}
			if !held || !out.Alive {
				out.Lost = append(out.Lost, store.LostRun{Ref: ref, State: state})
			}
		}
		if !out.Alive {
			return nil
		}
		return tx.renewExtras(p)
	})
	if err != nil {
		return store.RenewResult{}, err
	}
	return out, nil
}

// renewExtras writes what only some renewals carry.
func (t *tx) renewExtras(p store.RenewParams) error {
	if p.Queues != nil {
		queues, err := json.Marshal(p.Queues)
		if err != nil {
			return err
		}
		q := t.use(qSetQueues)
		q.text(p.Worker)
		q.text(string(queues))
		if err := q.exec(); err != nil {
			return err
		}
	}
	for _, h := range p.Progress {
		id, ok := parseUUID(h.Ref.RunID)
		if !ok || h.Ref.Worker != p.Worker {
			continue
		}
		q := t.use(qHeldProgress)
		q.blob(id[:])
		q.text(p.Worker)
		q.int(h.Ref.Claim)
		q.int(int64(h.Progress.Permille))
		q.text(h.Progress.Note)
		if err := q.exec(); err != nil {
			return err
		}
	}
	return nil
}

// heldState is the state of ref's run, "" if there is none, and whether worker
// still holds it under that claim.
func (t *tx) heldState(ref job.Ref, worker string) (state job.State, held bool, err error) {
	id, ok := parseUUID(ref.RunID)
	if !ok {
		return "", false, nil
	}
	q := t.use(qHeldState)
	q.blob(id[:])
	if q.step() {
		state = seenState(q.colText(0))
		held = state == job.Running && q.colText(1) == worker && ref.Worker == worker && q.colInt(2) == ref.Claim
	}
	return state, held, q.end()
}

// Deregister implements store.Workers.
func (s *Store) Deregister(ctx context.Context, worker string) error {
	return s.w.do(ctx, func(tx *tx) error {
		runs, err := tx.runsOf(worker, -1)
		if err != nil {
			return err
		}
		for i := range runs {
			r := &runs[i]
			err := tx.release(r, job.Ready, max(r.held.attempt-1, 0), r.held.orphans, job.Interrupted, nil, 0)
			if err != nil {
				return err
			}
		}
		q := tx.use(qDeleteWorker)
		q.text(worker)
		return q.exec()
	})
}

// ListWorkers implements store.Workers.
func (s *Store) ListWorkers(ctx context.Context) ([]store.Worker, error) {
	var out []store.Worker
	err := s.read(ctx, func(c *conn) error {
		out = nil
		q := c.use(qListWorkers)
		for q.step() {
			w := store.Worker{
				ID: q.colText(0), Host: q.colText(1), PID: int(q.colInt(2)),
				StartedAt: q.colTime(4), RenewedAt: q.colTime(5), ExpiresAt: q.colTime(6), Running: int(q.colInt(7)),
			}
			// A list that cannot be read hides the queues, not the worker.
			_ = json.Unmarshal(q.s.ColumnRawText(3), &w.Queues)
			out = append(out, w)
		}
		return q.end()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
