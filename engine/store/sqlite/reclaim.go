package sqlite

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qLapsedWorkers = named("lapsed_workers")
	qReleaseRun    = named("release_run")
)

// defaultReclaim is the limit of a reclaim that names none.
const defaultReclaim = 1000

// Reclaim implements store.Workers.
func (s *Store) Reclaim(ctx context.Context, p store.ReclaimParams) (store.ReclaimResult, error) {
	if err := p.Check(); err != nil {
		return store.ReclaimResult{}, err
	}
	if p.Limit == 0 {
		p.Limit = defaultReclaim
	}
	var out store.ReclaimResult
	err := s.w.do(ctx, func(tx *tx) error {
		out = store.ReclaimResult{}
		if err := tx.reclaimAll(p, &out); err != nil {
			return err
		}
		return tx.follow(out.Buried, p.Follow)
	})
	if err != nil {
		return store.ReclaimResult{}, err
	}
	return out, nil
}

// reclaimAll ends the claims of lapsed workers, within the limit.
func (t *tx) reclaimAll(p store.ReclaimParams, out *store.ReclaimResult) error {
	lapsed, err := t.lapsedWorkers()
	if err != nil {
		return err
	}
	left := p.Limit
	for _, worker := range lapsed {
		runs, err := t.runsOf(worker, left)
		if err != nil {
			return err
		}
		for i := range runs {
			if err := t.reclaim(&runs[i], p, out); err != nil {
				return err
			}
		}
		left -= len(runs)
		if left <= 0 {
			// It may hold more: its row stays for the next reclaim.
			return nil
		}
		q := t.use(qDeleteWorker)
		q.text(worker)
		if err := q.exec(); err != nil {
			return err
		}
	}
	return nil
}

// follow inserts the runs that commit with burials.
func (t *tx) follow(buried []job.Run, of func(job.Run) ([]store.EnqueueParams, error)) error {
	if of == nil {
		return nil
	}
	for i := range buried {
		runs, err := of(buried[i])
		if err != nil {
			return err
		}
		if err := store.CheckIDs(runs); err != nil {
			return err
		}
		if _, err := t.enqueue(runs); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) lapsedWorkers() ([]string, error) {
	q := t.use(qLapsedWorkers)
	q.int(t.now)
	var out []string
	for q.step() {
		out = append(out, q.colText(0))
	}
	return out, q.end()
}

// heldRun is a running run, to be taken from its worker.
type heldRun struct {
	job.Run
	held held
}

// runsOf returns the runs that a worker holds; a negative limit is none.
func (t *tx) runsOf(worker string, limit int) ([]heldRun, error) {
	q := t.use(qRunsOfWorker)
	q.text(worker)
	q.int(int64(limit))
	var out []heldRun
	for q.step() {
		r, seq, err := scanRun(&q)
		if err != nil {
			q.end()
			return nil, err
		}
		out = append(out, heldRun{r, held{
			seq: seq, queue: r.Queue, attempt: int64(r.Attempt), claimedAt: toMS(r.ClaimedAt),
			module: r.Module, steps: int64(r.Steps), orphans: int64(r.Orphans), gate: q.colText(atGateColumn),
		}})
	}
	return out, q.end()
}

// reclaim ends the claim of a lapsed worker on one run.
func (t *tx) reclaim(r *heldRun, p store.ReclaimParams, out *store.ReclaimResult) error {
	orphans := r.held.orphans + 1
	r.Orphans = int(orphans)
	state, failure := p.Verdict(&r.Run, r.Worker)
	var retention time.Duration
	if state.Terminal() {
		retention = p.Retention[r.Job]
	}
	if err := t.release(r, state, r.held.attempt, orphans, job.Orphaned, failure, retention); err != nil {
		return err
	}
	if state == job.Ready {
		out.Requeued = append(out.Requeued, r.Run)
		return nil
	}
	// Only a burial is the run's own failure; a lost worker is not.
	if err := t.setError(r.held.seq, failure); err != nil {
		return err
	}
	r.Error = *failure
	if r.Parent != "" {
		if err := t.tellParent(r.ID); err != nil {
			return err
		}
	}
	out.Buried = append(out.Buried, r.Run)
	return nil
}

// release takes a run from its worker and keeps r.Run in step with the row.
func (t *tx) release(r *heldRun, to job.State, attempts, orphans int64, outcome job.Outcome, failure *job.Failure, retention time.Duration) error {
	var runAt, finished, expires int64
	if to.Live() {
		runAt = t.now
	} else {
		finished = t.now
		if retention > 0 {
			expires = t.now + retention.Milliseconds()
		}
	}
	q := t.use(qReleaseRun)
	q.int(r.held.seq)
	q.text(string(to))
	q.int(attempts)
	q.int(orphans)
	q.ms(runAt)
	q.ms(finished)
	q.ms(expires)
	if err := q.exec(); err != nil {
		return err
	}
	if err := t.leave(r.held.seq, r.held.gate, true); err != nil {
		return err
	}
	ref := job.Ref{RunID: r.ID, Worker: r.Worker, Claim: r.Claims}
	if err := t.addAttempt(&r.held, attempt{ref: ref, outcome: outcome, runAt: runAt, failure: failure}); err != nil {
		return err
	}
	r.State, r.Worker, r.Attempt, r.Orphans = to, "", int(attempts), int(orphans)
	r.FinishedAt, r.ExpiresAt = fromMS(finished), fromMS(expires)
	if to.Terminal() {
		t.group.count(r.Queue, to, 1)
		return t.endChildren(r.held.seq, r.ID, false)
	}
	r.RunAt = fromMS(runAt)
	t.group.wake(r.Queue)
	return nil
}
