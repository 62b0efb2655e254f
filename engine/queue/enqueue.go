package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// MaxEnqueue bounds the entries of one EnqueueMany.
const MaxEnqueue = 10_000

// enqueueChunk is how many entries of an EnqueueMany share one write, so that
// a large batch does not hold up others' commits.
const enqueueChunk = 1000

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
	ctx, cancel := context.WithTimeout(ctx, enqueuePatience)
	defer cancel()
	res, err := q.enqueues.do(ctx, p)
	if err != nil {
		q.metrics.Enqueued("failed", 1)
		return Result{}, err
	}
	out := result(&r, &p, res)
	q.count(out)
	if out.Deduped && r.OnConflict == Fail {
		return Result{}, duplicate(p.Job, out.ID)
	}
	return out, nil
}

// EnqueueMany inserts a batch and answers one result each, in order. Every
// request is checked before the first is written, so a bad one (which the error
// names by its index) inserts nothing. Entries with the same job, tenant and
// key collapse on the first. An empty batch is an empty answer.
//
// Errors: as Enqueue; X_INVALID for more than MaxEnqueue requests, and for
// OnConflict Fail, which only a single enqueue can promise.
func (q *Queue) EnqueueMany(ctx context.Context, requests []Request) ([]Result, error) {
	if len(requests) == 0 {
		return []Result{}, nil
	}
	if err := checkMany(requests); err != nil {
		q.metrics.Enqueued("refused", len(requests))
		return nil, err
	}
	prepared, err := q.Prepare(requests)
	if err != nil {
		q.metrics.Enqueued("refused", len(requests))
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, enqueuePatience)
	defer cancel()
	results := make([]Result, 0, len(prepared))
	for start := 0; start < len(prepared); start += enqueueChunk {
		chunk := prepared[start:min(start+enqueueChunk, len(prepared))]
		answers, err := q.insert(ctx, chunk)
		if err != nil {
			q.metrics.Enqueued("failed", len(prepared)-start)
			return nil, fmt.Errorf("after %d of %d runs: %w", start, len(prepared), err)
		}
		for i := range answers {
			r := result(&requests[start+i], &chunk[i], answers[i])
			q.count(r)
			results = append(results, r)
		}
	}
	return results, nil
}

// tooMany refuses a batch by its size.
func tooMany(n int) error {
	return invalid("a batch has %d entries; at most %d go in one", n, MaxEnqueue)
}

func checkMany(requests []Request) error {
	if len(requests) > MaxEnqueue {
		return tooMany(len(requests))
	}
	var bad []string
	for i := range requests {
		if requests[i].OnConflict == Fail {
			bad = append(bad, fmt.Sprint(i))
		}
		if len(bad) == 10 {
			break
		}
	}
	if bad != nil {
		return invalid("a batch cannot fail on conflict (entries %s): part of it may be inserted", strings.Join(bad, ", "))
	}
	return nil
}

// insert writes one chunk, again if its answer was lost: the ids make it safe.
func (q *Queue) insert(ctx context.Context, chunk []store.EnqueueParams) ([]store.EnqueueResult, error) {
	whole := batcher[[]store.EnqueueParams, []store.EnqueueResult]{
		write: func(ctx context.Context, one [][]store.EnqueueParams) ([][]store.EnqueueResult, error) {
			r, err := q.store.Enqueue(ctx, one[0])
			return [][]store.EnqueueResult{r}, err
		},
		size:    func(*[]store.EnqueueParams) int { return 0 },
		observe: func(int) { q.metrics.Batch("enqueue", len(chunk)) },
	}
	return whole.do(ctx, chunk)
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

func duplicate(jobName, holder string) error {
	return &abi.Error{
		Code:    job.CodeDuplicate,
		Message: fmt.Sprintf("a live run of job %q holds the key: %s", jobName, holder),
		Fix:     "wait for it, cancel it, or enqueue under another key",
	}
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
