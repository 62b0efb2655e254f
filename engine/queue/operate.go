package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

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

// Cancel ends a live run; a running one stops when its worker learns of it. A run
// with steps to undo is answered as it lives on until these are undone, unless p
// says NoCompensate; then it is cancelled. Retention and By are the queue's to say.
// Errors: X_JOB_NOT_FOUND, X_JOB_NOT_CANCELLABLE.
func (q *Queue) Cancel(ctx context.Context, p store.CancelParams) (job.Run, error) {
	if err := job.CheckText(job.CodeInvalid, "reason", p.Reason, job.MaxErrorText); err != nil {
		return job.Run{}, err
	}
	r, err := q.store.Get(ctx, p.ID)
	if err != nil {
		return job.Run{}, err
	}
	p.Retention, p.By = q.Retention(r.Job), Actor(ctx)
	return q.store.Cancel(ctx, p)
}

// Retry runs a finished run again, from its first step that has no record or
// from the step named. One that stopped half undone goes on being undone, and ends
// as it would have. One that was undone is not taken up where it was, nor is with
// NoCompensate one that is half undone: a fresh run is enqueued in its place, whose
// Parent it is, and answered.
// Errors: X_JOB_NOT_FOUND, X_JOB_NOT_REQUEUEABLE (live, a step of a run that
// was undone, or a fresh run began in its place before), X_JOB_DUPLICATE, X_INVALID,
// those of Enqueue for a fresh run.
func (q *Queue) Retry(ctx context.Context, p store.RequeueParams) (job.Run, error) {
	if err := job.CheckAttempts(p.Attempts); err != nil {
		return job.Run{}, err
	}
	if p.By == "" {
		p.By = Actor(ctx)
	}
	// Undoing what is left of the first one might undo what the fresh one did.
	if err := q.replaced(ctx, p.ID); err != nil {
		return job.Run{}, err
	}
	r, err := q.store.Requeue(ctx, p)
	if errors.Is(err, store.ErrUndone) && p.FromStep == "" {
		return q.afresh(ctx, p)
	}
	return r, err
}

// replaced refuses to retry a run in whose place a fresh one began.
func (q *Queue) replaced(ctx context.Context, id string) error {
	fresh, err := successor(id)
	if err != nil {
		return nil // the store says so in its own words
	}
	switch _, err = q.store.Get(ctx, fresh); {
	case err == nil:
		return &abi.Error{
			Code:    job.CodeNotRequeueable,
			Message: fmt.Sprintf("run %s was undone, and run %s began in its place", id, fresh),
			Fix:     "look at that one, and retry it instead",
		}
	case abi.CodeOf(err) == job.CodeNotFound:
		return nil
	}
	return err
}

// afresh enqueues a run in place of one that was undone.
func (q *Queue) afresh(ctx context.Context, p store.RequeueParams) (out job.Run, err error) {
	r, err := q.store.Get(ctx, p.ID)
	if err != nil {
		return job.Run{}, err
	}
	fresh := Request{
		Job: r.Job, Input: r.Input, Key: r.Key, Tenant: r.Tenant, Priority: &r.Priority, MaxAttempts: r.MaxAttempts,
		Parent: r.ID, EnqueuedBy: p.By, Traceparent: r.Traceparent, OnConflict: Fail,
	}
	if fresh.Key == r.ID {
		fresh.Key = "" // its own id, as that of every run of the job
	}
	if p.Attempts > 0 {
		fresh.MaxAttempts = p.Attempts
	}
	if fresh.ID, err = successor(r.ID); err != nil {
		return job.Run{}, err
	}
	prepared, err := q.Prepare([]Request{fresh})
	if err != nil {
		return job.Run{}, err
	}
	span := q.beginSpan(prepared)
	var did Result
	defer func() { endSpan(span, []Result{did}, err) }()
	p.Latest = false // as every run that begins
	res, err := q.store.Restart(ctx, store.RestartParams{Of: r.ID, Run: prepared[0], By: p.By, Detail: p.Detail()})
	if err != nil {
		q.metrics.Enqueued("failed", 1)
		return job.Run{}, err
	}
	did = Result{ID: res.ID, Deduped: res.Deduped, State: res.State}
	q.count(did)
	if res.Deduped {
		if err := q.replaced(ctx, r.ID); err != nil {
			return job.Run{}, err
		}
		return job.Run{}, duplicate(r.Job, res.ID)
	}
	return q.store.Get(ctx, res.ID)
}

// successor is the id of the one run that may begin in place of another: four
// retries at once, or one whose answer was lost and that is repeated, must not
// become two runs, so it follows from the first one's id and from nothing else. It
// keeps that one's time, since an id of now would be another each time: it lists
// beside the run that it stands for.
func successor(id string) (string, error) {
	of, err := uuid.Parse(id)
	if err != nil {
		return "", &abi.Error{Code: job.CodeIDInvalid, Message: fmt.Sprintf("%q is not the id of a run", id), Err: err}
	}
	next := uuid.NewSHA1(of, []byte("in place of"))
	copy(next[:6], of[:6])
	next[6] = 0x70 | next[6]&0x0f
	return next.String(), nil
}

// Promote makes a delayed run due now. Errors: X_JOB_NOT_FOUND,
// X_JOB_NOT_PROMOTABLE.
func (q *Queue) Promote(ctx context.Context, id string) (job.Run, error) {
	return q.store.Promote(ctx, store.PromoteParams{ID: id, By: Actor(ctx)})
}

// Delete removes a run that is not running, with its history, and answers what
// it was. Errors: X_JOB_NOT_FOUND, X_JOB_NOT_REMOVABLE.
func (q *Queue) Delete(ctx context.Context, id string) (job.Run, error) {
	return q.store.Delete(ctx, store.DeleteParams{ID: id, By: Actor(ctx)})
}

// Audit is who did what, newest first. Errors: X_JOB_PAGE_INVALID.
func (q *Queue) Audit(ctx context.Context, p store.AuditParams) ([]store.AuditEntry, error) {
	return q.store.Audit(ctx, p)
}

type actorKey struct{}

// MaxActor is how much of an actor's name the audit keeps, in bytes.
const MaxActor = 255

// WithActor names who is behind the operations that ctx goes to, for the audit.
func WithActor(ctx context.Context, name string) context.Context {
	if len(name) > MaxActor {
		name = strings.ToValidUTF8(name[:MaxActor], "")
	}
	return context.WithValue(ctx, actorKey{}, name)
}

// Actor is who WithActor named, or "".
func Actor(ctx context.Context) string {
	name, _ := ctx.Value(actorKey{}).(string)
	return name
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
