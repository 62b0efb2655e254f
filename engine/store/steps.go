package store

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// Steps is the history of runs.
type Steps interface {
	// ListSteps returns the records of a run ordered by Seq. An unknown run has
	// none. Errors: X_JOB_ROW_STATUS_UNKNOWN for a record from another build.
	ListSteps(ctx context.Context, runID string) ([]job.Step, error)
	// Unwinds answers which of the runs were, or began to be, undone, and how. Runs
	// that are not there are left out.
	Unwinds(ctx context.Context, runIDs []string) (map[string]job.Unwind, error)
	// SaveSteps writes each record with one fenced write, together with what
	// the step enqueued, and answers in order. Entries are independent.
	SaveSteps(ctx context.Context, batch []StepParams) ([]StepResult, error)
}

// StepParams writes one record; an existing record of that name is replaced,
// keeping its StartedAt and Seq. Seq of a new record is one past the run's
// highest. A StepStarted over a record that is completed or failed lands and
// changes nothing: it is a write that was given up and repeated, and comes late.
type StepParams struct {
	Ref      job.Ref // ignored in SettleParams.Step
	Name     string
	Kind     job.StepKind
	Status   job.StepStatus
	Attempts int
	Output   []byte
	Error    *job.Failure
	Sleep    time.Duration // StepSleeping, StepWaiting: from the store's now, unless WakeAt is set
	WakeAt   time.Time
	Elapsed  time.Duration // StartedAt of a new record is the store's now less this
	Module   string        // digest to pin the run to; "" pins nothing
	// New says that the caller knows of no record of that name. It is a hint: a
	// record that exists is replaced all the same.
	New bool
	// Enqueue are the runs that commit with the record.
	Enqueue []EnqueueParams
	// OutputEnqueued makes the record's output the JSON array of
	// abi.EnqueueResult of Enqueue, so that a replay answers the same ids. An entry
	// that is answered with its own ID is not deduped there: this write was made
	// before, and its answer was lost.
	OutputEnqueued bool
	// Publish are the events that commit with the record.
	Publish []EventParams
	// Wait, of a record that is StepWaiting, is what it waits for. The write ends
	// it, as StepCompleted or StepTimedOut, if its event has come or its time is
	// over.
	Wait *WaitParams
}

// StepResult answers one StepParams. At is the record's FinishedAt.
type StepResult struct {
	Landed   bool
	At       time.Time
	Enqueued []EnqueueResult
	Output   []byte // with OutputEnqueued, and of a wait that is completed
	// Status and Place of a wait, as Step has them.
	Status job.StepStatus
	Place  int64
}

// Recorder is a store that writes steps and settles together.
type Recorder interface {
	// Record is SaveSteps and Settle, with one commit where it can be: for a
	// database of which each commit has a sync of its own. An error after which
	// some may have landed is ErrUnknown.
	Record(ctx context.Context, steps []StepParams, settles []SettleParams) ([]StepResult, []SettleResult, error)
}
