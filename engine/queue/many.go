package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// MaxEnqueue bounds the entries of one EnqueueMany.
const MaxEnqueue = 10_000

// enqueueChunk is how many entries of an EnqueueMany share one write, so that
// a large batch does not hold up others' commits.
const enqueueChunk = 1000

// EnqueueMany inserts a batch and answers one result each, in order. Every
// request is checked before the first is written, so a bad one (which the error
// names by its index) inserts nothing. Entries with the same job, tenant and
// key collapse on the first. An empty batch is an empty answer.
//
// A large batch is several writes, and a store that fails between them leaves
// the first ones done: the answers of those come with the error, which says so. A batch with OnConflict Fail in it is
// one write whatever its size, and inserts nothing at all if one of those
// requests meets a run that stands for it.
//
// Errors: as Enqueue; X_INVALID for more than MaxEnqueue requests;
// X_JOB_DUPLICATE with a *ConflictError that names every conflict.
func (q *Queue) EnqueueMany(ctx context.Context, requests []Request) (results []Result, err error) {
	if len(requests) == 0 {
		return []Result{}, nil
	}
	if len(requests) > MaxEnqueue {
		q.metrics.Enqueued("refused", len(requests))
		return nil, tooMany(len(requests))
	}
	prepared, err := q.Prepare(requests)
	if err != nil {
		q.metrics.Enqueued("refused", len(requests))
		return nil, err
	}
	span := q.beginSpan(prepared)
	defer func() { endSpan(span, results, err) }()
	write, chunk := q.store.Enqueue, enqueueChunk
	if slices.ContainsFunc(requests, func(r Request) bool { return r.OnConflict == Fail }) {
		chunk = len(prepared)
		requests = slices.Clone(requests) // a write may outlive this call
		write = func(ctx context.Context, all []store.EnqueueParams) ([]store.EnqueueResult, error) {
			return q.store.EnqueueIf(ctx, all, func(answers []store.EnqueueResult) error {
				return conflicts(requests, all, answers)
			})
		}
	}
	results = make([]Result, 0, len(prepared))
	for start := 0; start < len(prepared); start += chunk {
		part := prepared[start:min(start+chunk, len(prepared))]
		answers, err := q.insert(ctx, part, write)
		if err != nil {
			outcome := "failed"
			if abi.CodeOf(err) == job.CodeDuplicate {
				outcome = "refused"
			}
			q.metrics.Enqueued(outcome, len(prepared)-start)
			if start > 0 {
				err = fmt.Errorf("after %d of %d runs: %w", start, len(prepared), err)
			}
			return results, err
		}
		for i := range answers {
			r := result(&requests[start+i], &part[i], answers[i])
			q.count(r)
			results = append(results, r)
		}
	}
	return results, nil
}

// tooMany refuses a batch by its size.
func tooMany(n int) error {
	return invalid(fmt.Sprintf("send them in batches of at most %d", MaxEnqueue), "a batch has %d entries", n)
}

// entryTime is what an entry adds to the time that a write may take: a hundred
// times what it does take.
const entryTime = time.Millisecond

// insert writes one chunk, again if its answer was lost: the ids make it safe.
// The patience with a store that is away is each chunk's own, so that a slow
// store is not taken for one that is away because there is much to write.
func (q *Queue) insert(ctx context.Context, chunk []store.EnqueueParams, write Insert) ([]store.EnqueueResult, error) {
	whole := batcher[[]store.EnqueueParams, []store.EnqueueResult]{
		write: func(ctx context.Context, one [][]store.EnqueueParams) ([][]store.EnqueueResult, error) {
			r, err := write(ctx, one[0])
			return [][]store.EnqueueResult{r}, err
		},
		size:    func(*[]store.EnqueueParams) int { return 0 },
		observe: func(int) { q.metrics.Batch("enqueue", len(chunk)) },
		again: func(one *[]store.EnqueueParams) {
			for i := range *one {
				(*one)[i].Minted = false
			}
		},
		limit: writeTimeout + time.Duration(len(chunk))*entryTime,
	}
	patience, cancel := context.WithTimeout(ctx, enqueuePatience)
	defer cancel()
	return whole.patient(ctx, patience, chunk, nil)
}
