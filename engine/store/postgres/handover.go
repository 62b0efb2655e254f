package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var qEnqueueFor = named("enqueue_for")

// HandsOver implements store.HandsOver.
func (s *Store) HandsOver() {}

// handable reports whether a batch may be claimed for its worker as it goes in: a
// few new runs, due now, without what has to be looked at or kept apart. While
// claims are too slow to be exact, so is the look for what is due.
func (s *Store) handable(b *entries) bool {
	if !b.new || b.keyed || len(b.batch) >= copyMin || b.batch[0].Worker == "" {
		return false
	}
	for i := range b.batch {
		p := &b.batch[i]
		if p.Worker != b.batch[0].Worker || !p.RunAt.IsZero() || p.Delay > 0 || p.Gate != "" || len(p.Input) > inlineInput {
			return false
		}
	}
	return !s.claims.byLane()
}

// enqueueFor inserts a handable batch, in one statement that is its transaction.
// Workers of other processes are told later, and only of what was left to them.
func (s *Store) enqueueFor(ctx context.Context, b *entries) (left []int, err error) {
	n := len(b.batch)
	index := make(map[uuid]int, n)
	var (
		jobs, queues, tenants = make([]string, n), make([]string, n), make([]string, n)
		keys, by, traces      = make([]*string, n), make([]*string, n), make([]*string, n)
		inputs                = make([][]byte, n)
		priorities            = make([]int16, n)
		attempts              = make([]int32, n)
		parents               = make([]pgtype.UUID, n)
	)
	for i := range b.batch {
		p := &b.batch[i]
		index[b.ids[i]] = i
		jobs[i], queues[i], tenants[i] = enc(p.Job), enc(p.Queue), enc(p.Tenant)
		keys[i], by[i], traces[i] = storedKey(p), encOrNull(p.EnqueuedBy), encOrNull(p.Traceparent)
		priorities[i], attempts[i], parents[i] = int16(p.Priority), int32(p.MaxAttempts), idParam(p.Parent)
		if inputs[i] = p.Input; p.Input == nil {
			inputs[i] = []byte{} // NULL says that it is kept apart
		}
	}
	worker := b.batch[0].Worker
	all := b.all()
	var began map[int]time.Time
	err = s.write(ctx, func(q queryer) error {
		b.clear(all)
		began = make(map[int]time.Time, n)
		return s.run(ctx, q, call{
			st:   qEnqueueFor,
			args: []any{enc(worker), b.picked(all), jobs, queues, tenants, keys, inputs, priorities, attempts, parents, by, traces},
			scan: func(r *row) error {
				i := index[r.id()]
				running, now := r.bool(), r.time()
				if running {
					began[i] = now
				} else {
					b.enter(i, job.Ready, true)
				}
				return nil
			},
		})
	})
	if sqlState(err) == "23505" { // unique_violation: not new after all
		b.clear(all)
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	for i, now := range began {
		b.enter(i, job.Running, false)
		b.results[i].Run = begun(&b.batch[i], now)
	}
	s.notes.later(b.queues(all))
	return nil, nil
}

// begun is a run as its first claim at that instant answers it.
func begun(p *store.EnqueueParams, now time.Time) *job.Run {
	return &job.Run{
		ID: p.ID, Job: p.Job, Queue: p.Queue, Tenant: p.Tenant, Key: p.Key, State: job.Running,
		Priority: p.Priority, Attempt: 1, MaxAttempts: p.MaxAttempts, Claims: 1,
		RunAt: now, CreatedAt: now, StartedAt: now, ClaimedAt: now, Worker: p.Worker,
		Parent: p.Parent, EnqueuedBy: p.EnqueuedBy, Traceparent: p.Traceparent, Input: p.Input,
	}
}
