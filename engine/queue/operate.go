package queue

import (
	"context"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Get returns one run with input and output. Errors: X_JOB_NOT_FOUND.
func (q *Queue) Get(ctx context.Context, id string) (job.Run, error) { return q.store.Get(ctx, id) }

// List returns runs newest first. Errors: X_JOB_PAGE_INVALID.
func (q *Queue) List(ctx context.Context, p store.ListParams) ([]job.Run, error) {
	return q.store.List(ctx, p)
}

// Attempts returns the timeline of a run in claim order.
func (q *Queue) Attempts(ctx context.Context, id string) ([]job.AttemptRecord, error) {
	return q.store.Attempts(ctx, id)
}

// Stats counts.
func (q *Queue) Stats(ctx context.Context) (store.Stats, error) { return q.store.Stats(ctx) }

// Cancel ends a live run; a running one stops when its worker learns of it.
// Errors: X_JOB_NOT_FOUND, X_JOB_NOT_CANCELLABLE.
func (q *Queue) Cancel(ctx context.Context, id, reason string) (job.Run, error) {
	if len(reason) > job.MaxErrorText {
		return job.Run{}, &abi.Error{Code: job.CodeInvalid, Message: "the reason is longer than 16 KiB"}
	}
	r, err := q.store.Get(ctx, id)
	if err != nil {
		return job.Run{}, err
	}
	return q.store.Cancel(ctx, store.CancelParams{ID: id, Reason: reason, Retention: q.Retention(r.Job)})
}

// Retry runs a finished run again, from its first step that has no record or
// from the step named. Errors: X_JOB_NOT_FOUND, X_JOB_NOT_REQUEUEABLE,
// X_JOB_DUPLICATE, X_INVALID.
func (q *Queue) Retry(ctx context.Context, p store.RequeueParams) (job.Run, error) {
	if p.Attempts < 0 {
		return job.Run{}, invalid("%d attempts cannot be made; at least 1 is", p.Attempts)
	}
	return q.store.Requeue(ctx, p)
}

// defaultRetention is how long the run of a job that no manifest declares any
// more is kept.
const defaultRetention = 30 * 24 * time.Hour

// Retention is how long a finished run of a job is kept.
func (q *Queue) Retention(jobName string) time.Duration {
	if j, ok := q.manifest().Jobs[jobName]; ok {
		return j.Retention
	}
	return defaultRetention
}
