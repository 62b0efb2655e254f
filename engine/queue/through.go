package queue

import (
	"context"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Insert writes prepared entries somewhere of its own, as a transaction of the
// caller's, and answers as store.Enqueuer does.
type Insert func(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error)

// EnqueueThrough checks requests as EnqueueMany does and gives them to insert,
// once and all together. What insert answers with an error is not repeated. The
// metrics count what was inserted, whatever becomes of it.
//
// Errors: those of Prepare and of insert; X_INVALID for more than MaxEnqueue
// requests; X_JOB_DUPLICATE for requests with OnConflict Fail that met a live
// run, all of which it names (*ConflictError): the others are inserted then, and
// it is for the caller to undo that.
func (q *Queue) EnqueueThrough(ctx context.Context, requests []Request, insert Insert) (results []Result, err error) {
	if len(requests) == 0 {
		return []Result{}, nil
	}
	if len(requests) > MaxEnqueue {
		return nil, tooMany(len(requests))
	}
	prepared, err := q.Prepare(requests)
	if err != nil {
		q.metrics.Enqueued("refused", len(requests))
		return nil, err
	}
	span := q.beginSpan(prepared)
	defer func() { endSpan(span, results, err) }()
	answers, err := insert(ctx, prepared)
	if err == nil && len(answers) != len(prepared) {
		err = &abi.Error{Code: job.CodeInternal, Message: "the store answered another number of results than it was given entries"}
	}
	if err != nil {
		q.metrics.Enqueued("failed", len(requests))
		return nil, err
	}
	results = make([]Result, len(answers))
	for i := range answers {
		results[i] = result(&requests[i], &prepared[i], answers[i])
		q.count(results[i])
	}
	if err := conflicts(requests, prepared, answers); err != nil {
		return nil, err
	}
	return results, nil
}
