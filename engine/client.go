package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// Request asks for a run; Result is the run it led to. EntryError is inside an
// error about one request of several, ConflictError inside an X_JOB_DUPLICATE
// about some of them.
type (
	Request       = queue.Request
	Result        = queue.Result
	EntryError    = queue.EntryError
	ConflictError = queue.ConflictError
	Event         = queue.Event
	Published     = queue.Published
	Conflict      = queue.Conflict
)

// A bulk operation, and what it did.
type (
	BulkParams = queue.BulkParams
	BulkVerb   = queue.Verb
	BulkResult = queue.BulkResult
)

// Verbs of bulk operations.
const (
	BulkCancel  = queue.Cancel
	BulkRetry   = queue.Retry
	BulkPromote = queue.Promote
	BulkDelete  = queue.Delete
	MaxBulk     = queue.MaxBulk
)

// WithActor names who is behind the operations that ctx goes to: cancels,
// retries and the like are kept in the audit under that name.
func WithActor(ctx context.Context, name string) context.Context { return queue.WithActor(ctx, name) }

// What a live holder of a request's key means.
const (
	Dedupe = queue.Dedupe
	Fail   = queue.Fail
)

// Client enqueues, reads and operates. It is safe for concurrent use and needs
// no worker in its process.
type Client struct {
	queue     *queue.Queue
	store     clientStore
	cancelled func(runID string) // tells a worker in this process; nil without one

	mu      sync.Mutex
	waiting map[string][]chan struct{} // by run: closed when a settle landed
}

// clientStore is what a client asks of a database past the queue.
type clientStore interface {
	store.Clock
	store.Schedules
}

// ClientConfig is what a client without a worker needs.
type ClientConfig struct {
	Store    store.Store
	Manifest *manifest.Manifest
	// Current, when not nil, answers the manifest of each enqueue in place of
	// Manifest, for a program that loads it again. Any goroutine may call it.
	Current func() *manifest.Manifest
	Logger  *slog.Logger // default discards
	Tracer  trace.Tracer // nil makes no spans
}

// NewClient returns a client that runs nothing.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Store == nil || cfg.Manifest == nil && cfg.Current == nil {
		return nil, &abi.Error{Code: job.CodeInvalid, Message: "a client needs a store and a manifest"}
	}
	if cfg.Current == nil {
		cfg.Current = func() *manifest.Manifest { return cfg.Manifest }
	}
	return newClient(cfg.Store, queue.New(queue.Config{
		Store:    cfg.Store,
		Manifest: cfg.Current,
		Logger:   cfg.Logger,
		Tracer:   cfg.Tracer,
	})), nil
}

func newClient(s clientStore, q *queue.Queue) *Client {
	return &Client{queue: q, store: s, waiting: map[string][]chan struct{}{}}
}

// Enqueue inserts a run or finds the live one that holds its key. See
// queue.Queue.Enqueue for its errors.
func (c *Client) Enqueue(ctx context.Context, r Request) (Result, error) {
	return c.queue.Enqueue(ctx, r)
}

// EnqueueMany inserts a batch, every entry of which is checked before the first
// is written. With OnConflict Fail it is all or nothing; see
// queue.Queue.EnqueueMany.
func (c *Client) EnqueueMany(ctx context.Context, requests []Request) ([]Result, error) {
	return c.queue.EnqueueMany(ctx, requests)
}

// Publish publishes an event and wakes the runs that wait for it. See
// queue.Queue.Publish for its errors.
func (c *Client) Publish(ctx context.Context, e Event) (Published, error) {
	return c.queue.Publish(ctx, e)
}

// Events lists what was published and has not expired, newest first.
func (c *Client) Events(ctx context.Context, p store.ListEventsParams) ([]job.Event, error) {
	return c.queue.Events(ctx, p)
}

// Get returns one run with input and output. Errors: X_JOB_NOT_FOUND.
func (c *Client) Get(ctx context.Context, id string) (job.Run, error) { return c.queue.Get(ctx, id) }

// List returns runs newest first, without inputs and outputs.
func (c *Client) List(ctx context.Context, p store.ListParams) ([]job.Run, error) {
	return c.queue.List(ctx, p)
}

// Attempts returns the timeline of a run.
func (c *Client) Attempts(ctx context.Context, id string) ([]job.AttemptRecord, error) {
	return c.queue.Attempts(ctx, id)
}

// Steps returns the step records of a run.
func (c *Client) Steps(ctx context.Context, id string) ([]job.Step, error) {
	return c.queue.ListSteps(ctx, id)
}

// Stats counts runs by queue and state.
func (c *Client) Stats(ctx context.Context) (store.Stats, error) { return c.queue.Stats(ctx) }

// CancelOption is how Cancel may do it otherwise.
type CancelOption func(*store.CancelParams)

// NoCompensate ends the run where it is: none of its steps is undone, nor of the
// children that end with it.
func NoCompensate() CancelOption {
	return func(p *store.CancelParams) { p.NoCompensate = true }
}

// Cancel ends a live run. A running one is stopped at once if this process runs
// it, and at its worker's next renewal otherwise. A run with completed steps that
// have compensators is undone first, the last step first: it is answered as it
// lives on, and ends cancelled after that.
// Errors: X_JOB_NOT_FOUND, X_JOB_NOT_CANCELLABLE.
func (c *Client) Cancel(ctx context.Context, id, reason string, how ...CancelOption) (job.Run, error) {
	p := store.CancelParams{ID: id, Reason: reason}
	for _, o := range how {
		o(&p)
	}
	r, err := c.queue.Cancel(ctx, p)
	if err != nil {
		return job.Run{}, err
	}
	if c.cancelled != nil {
		c.cancelled(id)
	}
	c.settled(id, r.State)
	return r, nil
}

// Retry runs a finished run again, keeping its completed steps unless p names
// the step to begin from. Errors: X_JOB_NOT_FOUND, X_JOB_NOT_REQUEUEABLE,
// X_JOB_DUPLICATE.
func (c *Client) Retry(ctx context.Context, p store.RequeueParams) (job.Run, error) {
	return c.queue.Retry(ctx, p)
}

// Promote makes a delayed run due now. Errors: X_JOB_NOT_FOUND,
// X_JOB_NOT_PROMOTABLE.
func (c *Client) Promote(ctx context.Context, id string) (job.Run, error) {
	return c.queue.Promote(ctx, id)
}

// Delete removes a run that is not running, with its steps and attempts, and
// answers what it was. Errors: X_JOB_NOT_FOUND, X_JOB_NOT_REMOVABLE.
func (c *Client) Delete(ctx context.Context, id string) (job.Run, error) {
	r, err := c.queue.Delete(ctx, id)
	if err == nil {
		c.settled(id, r.State)
	}
	return r, err
}

// Bulk does one thing to up to 1,000 runs that a filter names, oldest first. It
// is not one write: with an error it answers what it had done.
// Errors: X_INVALID, X_JOB_PAGE_INVALID, the store's.
func (c *Client) Bulk(ctx context.Context, p BulkParams) (BulkResult, error) {
	res, err := c.queue.Bulk(ctx, p)
	if p.Verb == BulkCancel && !p.DryRun {
		for _, id := range res.Moved {
			if c.cancelled != nil {
				c.cancelled(id)
			}
			if !slices.Contains(res.Undoing, id) {
				c.settled(id, job.Cancelled)
			}
		}
	}
	return res, err
}

// SetPause pauses a queue, a job or a tenant, or resumes it, and answers whether
// that changed anything. See queue.Queue.SetPause.
func (c *Client) SetPause(ctx context.Context, p store.PauseParams) (changed bool, err error) {
	return c.queue.SetPause(ctx, p)
}

// Pauses lists what is or was paused.
func (c *Client) Pauses(ctx context.Context) ([]store.Pause, error) { return c.queue.Pauses(ctx) }

// Audit is who did what, newest first; see WithActor. Entries are kept for 90
// days. Errors: X_JOB_PAGE_INVALID.
func (c *Client) Audit(ctx context.Context, p store.AuditParams) ([]store.AuditEntry, error) {
	return c.queue.Audit(ctx, p)
}
