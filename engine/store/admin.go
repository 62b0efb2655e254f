package store

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// Admin is for operators and listings.
type Admin interface {
	// Get returns one run with input and output. Errors: X_JOB_NOT_FOUND.
	Get(ctx context.Context, id string) (job.Run, error)
	// List returns runs newest first (oldest first if asked), without Input and
	// Output; newest is by id, since ids are time-ordered. Runs with a state of
	// another build are left out. Errors: X_JOB_PAGE_INVALID, X_INVALID (State).
	List(ctx context.Context, p ListParams) ([]job.Run, error)
	// Attempts returns the timeline of a run in claim order.
	Attempts(ctx context.Context, runID string) ([]job.AttemptRecord, error)
	// Cancel ends a live run; a running one learns at its worker's next renewal.
	// One that has something to undo (a record of KindUndoable that is completed, or
	// one of KindUnwind) goes on living to be undone: it is ready, or suspended for
	// as long as a worker that has it may think so, see LetGo, and the record of its
	// KindUnwind says that it ends cancelled. With either, its live children are
	// cancelled as those of a run that ended.
	// Errors: X_JOB_NOT_FOUND, X_JOB_NOT_CANCELLABLE (terminal, or cancelled before
	// and being undone).
	Cancel(ctx context.Context, p CancelParams) (job.Run, error)
	// Requeue makes a terminal run ready again with attempt 0, keeping id,
	// claim ordinal and steps; Progress, Output and Orphans are cleared, and the
	// record that a first attempt left out when it completed is added. One that
	// stopped half undone goes on being undone, as Resume says. Errors:
	// X_JOB_NOT_FOUND, X_JOB_NOT_REQUEUEABLE (live, or undone: ErrUndone),
	// X_JOB_DUPLICATE (another live run holds the key), X_INVALID (FromStep names no
	// step).
	Requeue(ctx context.Context, p RequeueParams) (job.Run, error)
	// Restart enqueues a run in place of one that was undone, as Enqueue would, and
	// the audit says so of both. A run that has its id, or its key, is answered
	// instead, and nothing is written. Errors: those of Enqueue.
	Restart(ctx context.Context, p RestartParams) (EnqueueResult, error)
	// Promote makes a delayed run ready, due now if it was not; a ready one stays
	// as it is. Errors: X_JOB_NOT_FOUND, X_JOB_NOT_PROMOTABLE (suspended until a
	// later time, running or terminal).
	Promote(ctx context.Context, p PromoteParams) (job.Run, error)
	// Delete removes a run that is not running, with its steps and attempts, and
	// answers what it was. Nothing is undone, in a live one and its children either. Errors: X_JOB_NOT_FOUND, X_JOB_NOT_REMOVABLE.
	Delete(ctx context.Context, p DeleteParams) (job.Run, error)
	// Purge deletes finished runs whose ExpiresAt has passed, oldest first,
	// with their steps and attempts, and answers how many. It is not atomic:
	// with an error it answers how many were deleted before it.
	Purge(ctx context.Context, limit int) (int, error)
	// Stats counts for gauges, at a cost that no backlog raises: see StatsBounds.
	Stats(ctx context.Context) (Stats, error)
}

// ListParams filters a listing. Zero values filter nothing.
type ListParams struct {
	State    job.State
	Job      string
	Queue    string
	Tenant   *string // "" is untenanted
	IDPrefix string  // literal
	Parent   string
	Code     string    // of the run's error
	Since    time.Time // created then or later
	Until    time.Time // created before
	Before   string    // id of a run: only older ones, exclusive
	After    string    // id of a run: only newer ones, exclusive
	Oldest   bool      // oldest first
	Limit    int       // 0 is 100; at most 1,000
}

// CancelParams cancels one run. Reason, when not empty, becomes its error. By
// is who does it, for the audit; so in the other verbs.
type CancelParams struct {
	ID        string
	Reason    string
	Retention time.Duration // 0 keeps it for ever
	By        string
	// NoCompensate ends the run where it is, and the children that end with it.
	NoCompensate bool
}

// PromoteParams makes one run due now.
type PromoteParams struct {
	ID string
	By string
}

// DeleteParams removes one run.
type DeleteParams struct {
	ID string
	By string
}

// RequeueParams runs a finished run again. FromStep deletes that step's record
// and every record of a higher Seq. Attempts, when positive, replaces the run's
// maximum.
type RequeueParams struct {
	ID       string
	FromStep string
	Attempts int
	By       string
	// NoCompensate leaves a run that stopped half undone as it is: ErrUndone.
	NoCompensate bool
	// Latest takes the run off the module that it began with: it goes on with the
	// one that is served when it is claimed.
	Latest bool
}
