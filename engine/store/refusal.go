package store

import (
	"errors"
	"fmt"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// The refusals of verbs, for every store.

// ErrUndone marks the refusal to requeue a run that was undone, or that is to be
// left half undone. Test with errors.Is.
var ErrUndone = errors.New("the run's steps were undone")

// NoState says that runs have no such state.
func NoState(s job.State) error {
	return &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("%s is no state of a run", job.Quote(string(s))), Fix: fmt.Sprintf("name one of %v", job.States)}
}

// NoCursor says that a listing cannot go on after what is no id.
func NoCursor(id string) error {
	return &abi.Error{Code: job.CodePageInvalid, Message: fmt.Sprintf("the cursor %s is not the id of a run", job.Quote(id)), Fix: "use the last id of the page before"}
}

// NotFound says that no run has the id.
func NotFound(id string) error {
	return &abi.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no run has the id %s", job.Quote(id)), Fix: "list runs with `runner jobs ls`"}
}

// NotCancellable refuses the cancel of a run that has ended.
func NotCancellable(r *job.Run) error {
	return &abi.Error{
		Code:    job.CodeNotCancellable,
		Message: fmt.Sprintf("run %s is %s already", r.ID, r.State),
		Fix:     "only a run that has not ended can be cancelled",
	}
}

// KeyHeld refuses to requeue a run whose key another live run holds.
func KeyHeld(r *job.Run, holder string) error {
	return &abi.Error{
		Code:    job.CodeDuplicate,
		Message: fmt.Sprintf("run %s of job %s holds the key %q of run %s", holder, r.Job, r.Key, r.ID),
		Fix:     "let that run end, or cancel it",
	}
}

// NoStep refuses to requeue a run from a step that it has no record of.
func NoStep(r *job.Run, step string) error {
	return &abi.Error{
		Code:    job.CodeInvalid,
		Message: fmt.Sprintf("run %s has no step named %s", r.ID, job.Quote(step)),
		Fix:     "list its steps with `runner jobs show " + r.ID + "`",
	}
}

// NotPromotable refuses to promote a run.
func NotPromotable(r *job.Run) error {
	return &abi.Error{
		Code:    job.CodeNotPromotable,
		Message: fmt.Sprintf("run %s is %s", r.ID, r.State),
		Fix:     "only a run that is delayed can be made due now",
	}
}

// NotRemovable refuses to delete a run that is running.
func NotRemovable(r *job.Run) error {
	return &abi.Error{
		Code:    job.CodeNotRemovable,
		Message: fmt.Sprintf("run %s is %s", r.ID, r.State),
		Fix:     "cancel it first: runner jobs cancel " + r.ID,
	}
}
