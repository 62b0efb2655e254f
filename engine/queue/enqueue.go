package queue

import (
	"context"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/store"
)

// enqueuePatience is how long an enqueue outlasts a store that is away: longer
// than a store waits for another process's lock, so that it hears of that.
const enqueuePatience = 6 * time.Second

// Enqueue inserts a run or finds the live one that holds its key. It shares
// commits with other enqueues of this process.
//
// Errors: those of Prepare, X_JOB_DUPLICATE with OnConflict Fail, and the
// store's. An error that is store.ErrUnknown may have inserted the run: a
// caller who named an ID, or whose job has a deduplicating key, may repeat it.
func (q *Queue) Enqueue(ctx context.Context, r Request) (Result, error) {
	var p store.EnqueueParams
	if err := q.prepare(&r, &p); err != nil {
		q.metrics.Enqueued("refused", 1)
		return Result{}, err
	}
	if q.tracer == nil {
		return q.enqueue(ctx, &r, p)
	}
	one := []store.EnqueueParams{p}
	span := q.beginSpan(one)
	res, err := q.enqueue(ctx, &r, one[0])
	endSpan(span, []Result{res}, err)
	return res, err
}

// enqueue writes a request that was checked.
func (q *Queue) enqueue(ctx context.Context, r *Request, p store.EnqueueParams) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, enqueuePatience)
	defer cancel()
	res, err := q.enqueues.patient(ctx, ctx, p, q.handOver(&p))
	if err != nil {
		q.metrics.Enqueued("failed", 1)
		return Result{}, err
	}
	out := result(r, &p, res)
	q.count(out)
	if out.Deduped && r.OnConflict == Fail {
		return Result{}, duplicate(p.Job, out.ID)
	}
	return out, nil
}

// result tells a caller what became of a request. An id that this process has
// just minted can only be held by this very request, written twice.
func result(r *Request, p *store.EnqueueParams, res store.EnqueueResult) Result {
	deduped := res.Deduped && (r.ID != "" || res.ID != p.ID)
	return Result{ID: res.ID, Deduped: deduped, State: res.State}
}

func (q *Queue) count(r Result) {
	if r.Deduped {
		q.metrics.Enqueued("deduped", 1)
		return
	}
	q.metrics.Enqueued("inserted", 1)
}

// FindLive answers the live run that would stand for p, or "". It outlasts a
// store that is away for as long as ctx lives.
func (q *Queue) FindLive(ctx context.Context, p *store.EnqueueParams) (string, error) {
	if j, ok := q.manifest().Jobs[p.Job]; ok && j.Key.UsesRunID() && strings.Contains(p.Key, p.ID) {
		return "", nil // the key is this run's alone
	}
	backoff := loop.Backoff{Floor: retryFloor, Ceiling: retryCeiling}
	for {
		id, err := q.store.FindLive(ctx, p.Job, p.Tenant, p.Key)
		if err == nil || !transient(err) || !loop.Sleep(ctx, backoff.Next()) {
			return id, err
		}
	}
}
