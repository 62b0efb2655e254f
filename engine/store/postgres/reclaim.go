package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qAnyLapsed    = named("any_lapsed")
	qLockLapsed   = named("lock_lapsed")
	qRunsOf       = named("runs_of")
	qRunsOfLapsed = named("runs_of_lapsed")
)

// defaultReclaim is the limit of a reclaim that names none.
const defaultReclaim = 1000

// Reclaim implements store.Workers. Mostly nobody has lapsed, which is one cheap
// statement. If someone has, the workers' rows are locked before their runs are
// looked at, so that nothing they claim can be missed and no renewal comes in
// between; rows that others are busy with are left to the next call.
func (s *Store) Reclaim(ctx context.Context, p store.ReclaimParams) (out store.ReclaimResult, err error) {
	if err := p.Check(); err != nil {
		return out, err
	}
	if p.Limit == 0 {
		p.Limit = defaultReclaim
	}
	any := false
	err = s.read(ctx, func(q queryer) error {
		return s.run(ctx, q, call{st: qAnyLapsed, scan: func(r *row) error {
			any = r.bool()
			return nil
		}})
	})
	if err != nil || !any {
		return out, err
	}
	var woken []resting
	var entered *entries
	try := 0
	err = s.inTx(ctx, func(tx pgx.Tx) (err error) {
		try++
		if out, err = s.reclaimIn(ctx, tx, p); err != nil {
			return err
		}
		if woken, err = s.tellOfBuried(ctx, tx, out.Buried); err != nil {
			return err
		}
		if entered, err = s.followBuried(ctx, tx, out.Buried, p.Follow, enqueueModeOf(try)); err != nil {
			return err
		}
		queues := queuesOfResting(woken)
		if entered != nil {
			queues = append(queues, entered.queues(entered.all())...)
		}
		for _, r := range out.Requeued {
			queues = append(queues, r.Queue)
		}
		for _, r := range out.Buried {
			queues = append(queues, r.Queue) // something may have waited for its place
		}
		return s.notes.in(ctx, tx, queues)
	})
	if err != nil {
		return store.ReclaimResult{}, err
	}
	s.readied(out.Requeued)
	for _, r := range out.Buried {
		s.hub.Post(slices.Values([]string{r.Queue}))
	}
	s.woke(woken)
	if entered != nil {
		s.entered(entered)
	}
	return out, nil
}

// readied tells this process of runs that are ready again.
func (s *Store) readied(runs []job.Run) {
	var queues []string
	for _, r := range runs {
		s.claims.lower(r.Queue, r.Tenant, r.Rank(), r.RunAt)
		queues = append(queues, r.Queue)
	}
	s.hub.Post(slices.Values(queues))
}

func (s *Store) reclaimIn(ctx context.Context, tx pgx.Tx, p store.ReclaimParams) (out store.ReclaimResult, err error) {
	var lapsed []string // as they are stored
	err = s.run(ctx, tx, call{st: qLockLapsed, scan: func(r *row) error {
		lapsed = append(lapsed, string(r.next()))
		return nil
	}})
	if err != nil || len(lapsed) == 0 {
		return out, err
	}
	runs, err := s.runsOf(ctx, tx, call{st: qRunsOfLapsed, args: []any{lapsed, p.Limit}})
	if err != nil {
		return out, err
	}
	var a endings
	for _, r := range runs {
		a.add(bury(&r, p))
		if r.State == job.Ready {
			out.Requeued = append(out.Requeued, r)
		} else {
			out.Buried = append(out.Buried, r)
		}
	}
	var calls []call
	if len(runs) > 0 {
		moved := map[string]*job.Run{}
		for i := range out.Requeued {
			moved[out.Requeued[i].ID] = &out.Requeued[i]
		}
		for i := range out.Buried {
			moved[out.Buried[i].ID] = &out.Buried[i]
		}
		calls = append(calls, call{st: qSettle, args: a.args(), scan: func(r *row) error {
			i := r.int() - 1
			due, now := r.time(), r.time()
			run := moved[formatUUID(a.ids[i].Bytes[:])]
			if run.State == job.Ready {
				run.RunAt = due
				return nil
			}
			run.FinishedAt = now
			if keep := a.keep[i]; keep > 0 {
				run.ExpiresAt = now.Add(time.Duration(keep) * time.Millisecond)
			}
			return nil
		}})
	}
	calls = append(calls, call{st: qDeleteWorkers, args: []any{lapsed}})
	return out, s.runAll(ctx, tx, calls...)
}

// tellOfBuried tells those who wait for buried runs, and cancels those for which
// these waited.
func (s *Store) tellOfBuried(ctx context.Context, tx pgx.Tx, buried []job.Run) (woken []resting, err error) {
	if len(buried) == 0 {
		return nil, nil
	}
	var f family
	ids := make([]string, len(buried))
	for i, r := range buried {
		ids[i] = r.ID
		f.add(r.ID, r.Parent)
	}
	if len(f.ended) > 0 {
		calls := append([]call{f.lock()}, f.calls(func(r resting) { woken = append(woken, r) })...)
		if err := s.runAll(ctx, tx, calls...); err != nil {
			return nil, err
		}
	}
	undone, err := s.leaveChildren(ctx, tx, ids, false)
	return append(woken, undone...), err
}

// followBuried inserts the runs that commit with burials.
func (s *Store) followBuried(ctx context.Context, tx pgx.Tx, buried []job.Run, of func(job.Run) ([]store.EnqueueParams, error), mode enqueueMode) (*entries, error) {
	if of == nil {
		return nil, nil
	}
	var all []store.EnqueueParams
	for i := range buried {
		runs, err := of(buried[i])
		if err != nil {
			return nil, err
		}
		all = append(all, runs...)
	}
	return s.follow(ctx, tx, all, mode)
}

// follow inserts runs that commit with the ends of others; nil if there are none.
func (s *Store) follow(ctx context.Context, tx pgx.Tx, runs []store.EnqueueParams, mode enqueueMode) (*entries, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	b, err := newEntries(runs)
	if err != nil {
		return nil, err
	}
	return b, s.enqueueIn(ctx, tx, b, b.all(), mode)
}

// bury decides what becomes of a lapsed worker's run, and changes r to it.
func bury(r *job.Run, p store.ReclaimParams) ending {
	worker := r.Worker
	r.Orphans++
	orphans := int32(r.Orphans)
	to, failure := p.Verdict(r, worker)
	e := ending{ref: refOf(*r), outcome: job.Orphaned, to: to, orphans: &orphans, attemptError: failure}
	if e.to.Terminal() {
		// Only a burial is the run's own failure; a lost worker is not.
		e.runError, e.keep = failure, p.Retention[r.Job]
		r.Error = *failure
	}
	r.State, r.Worker = e.to, ""
	return e
}

// runsOf collects the runs that a statement answers.
func (s *Store) runsOf(ctx context.Context, q queryer, c call) (out []job.Run, err error) {
	c.scan = func(r *row) error {
		run, err := r.run()
		out = append(out, run)
		return err
	}
	err = s.run(ctx, q, c)
	return out, err
}
