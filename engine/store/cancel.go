package store

import (
	"encoding/json"
	"fmt"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// ToUndo is what the history of a run says of undoing it.
type ToUndo struct {
	Undoable bool         // a completed record of job.KindUndoable
	Unwind   []byte       // output of the record of job.KindUnwind; nil is none
	Failure  *job.Failure // of that record
	// Left says that a completed record of job.KindUndoable has none of
	// job.KindCompensation that is completed. Known to a requeue only.
	Left bool
}

// Failure is the error of a run that is cancelled; nil keeps what it has.
func (p CancelParams) Failure() *job.Failure {
	if p.Reason == "" {
		return nil
	}
	return &job.Failure{Code: job.CodeCancelled, Message: p.Reason}
}

// Unwind is what becomes of a live run that is cancelled, by which every store
// goes: the record with which it is undone first, or nil if it ends at once.
// Errors: X_JOB_NOT_CANCELLABLE if it was cancelled before.
func (p CancelParams) Unwind(r *job.Run, u ToUndo) (*StepParams, error) {
	if p.NoCompensate || !u.Undoable && u.Unwind == nil {
		return nil, nil
	}
	unwind, failure := job.UnwindFrom(r), u.Failure
	if u.Unwind != nil {
		var err error
		if unwind, err = job.ParseUnwind(u.Unwind); err != nil {
			return nil, err
		}
		if unwind.Cancelled {
			return nil, &abi.Error{
				Code:    job.CodeNotCancellable,
				Message: fmt.Sprintf("run %s was cancelled, and is being undone", r.ID),
				Fix:     "let it end, or end it where it is with --no-compensate",
			}
		}
	}
	if failure == nil {
		failure = &job.Failure{Code: job.CodeCancelled, Message: p.Reason}
	}
	unwind.Cancelled = true
	output, err := json.Marshal(unwind)
	if err != nil {
		return nil, err
	}
	return &StepParams{Name: job.UnwindName, Kind: job.KindUnwind, Status: job.StepCompleted, Output: output, Error: failure}, nil
}

// Detail says of a cancel why, and what of it is not the usual.
func (p CancelParams) Detail() string {
	switch {
	case !p.NoCompensate:
		return p.Reason
	case p.Reason == "":
		return "nothing undone"
	}
	return p.Reason + ", nothing undone"
}
