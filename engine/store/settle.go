package store

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// Settler ends attempts.
type Settler interface {
	// Settle ends each attempt with one fenced write and answers in order
	// whether it landed. Entries are independent: a miss does not stop others.
	// A settle repeated after ErrUnknown finds its own ordinal and answers Landed.
	Settle(ctx context.Context, batch []SettleParams) ([]SettleResult, error)
}

// SettleParams ends one attempt. The store checks Outcome.Settles(To), gives an
// uncounted attempt back, clears the claim, appends the attempt to the run's
// timeline (except a first attempt that completed) and, if To is terminal,
// stamps FinishedAt and ExpiresAt. Every outcome but Shed, which says nothing
// of the run, resets Orphans.
type SettleParams struct {
	Ref       job.Ref
	Outcome   job.Outcome
	To        job.State
	Delay     time.Duration // To delayed: from the store's now
	Output    []byte        // Completed
	Error     *job.Failure  // nil keeps what the run has
	Module    string        // digest to pin to; "" pins nothing
	Retention time.Duration // To terminal: how long it is kept; 0 keeps it for ever
	// Step, when not nil, is recorded in the same write. A sleeping or waiting
	// step's WakeAt becomes the run's due time; a wait that is over makes the run
	// due at once. The record of a run that suspends or
	// retries lands with its settle or not at all.
	Step *StepParams
	// Progress, when not nil, is the last value the handler reported.
	Progress *job.Progress
	// Invoke, when not nil, starts children and parks the run. To suspended.
	Invoke *InvokeParams
	// Parent is the run's: the run that may be waiting for its end, "" if none
	// can be. It is needed with To terminal only.
	Parent string
	// Invoked says that the run may have live children. It is needed with To
	// terminal only.
	Invoked bool
	// Log are lines of the attempt that are not saved yet, as in LogParams.
	Log []job.LogLine
	// Enqueue are runs that commit with the end: only the write that ends the
	// attempt inserts them, a repeat of it does not. They go in after all ends of
	// the batch, whose keys they may take.
	Enqueue []EnqueueParams
	// Wake is the run's queue if another process may have to look what waits for
	// the place that the end leaves, as a wake tells it soon after the commit; ""
	// if this process looks itself, or nothing is limited.
	Wake string
}

// SettleResult answers one SettleParams.
type SettleResult struct {
	Landed bool
	RunAt  time.Time // when the run is due again; zero if terminal
}
