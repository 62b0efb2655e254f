package step

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// unwinding is what an attempt knows of a run that is undone.
type unwinding struct {
	job.Unwind
	failure job.Failure         // of the run
	undone  map[string]struct{} // steps
}

// undoable is a completed step that the guest can undo, in this attempt.
type undoable struct {
	name string
	seq  int // place in the history; that of a step of this attempt is after all others
}

// Lapsed is the failure of a run whose worker was lost during its last attempt.
var Lapsed = job.Failure{
	Code: job.CodeMaxAttempts, Message: "the worker was lost during the last attempt",
	Fix: "retry it when the cause is known",
}

// hydrateUnwind takes the engine's own records out of the history of a run of a
// job that compensates. A run that is back after its last attempt lost it with
// its worker: it is undone as well, which is recorded now so that it is for
// every later attempt. Errors: the store's.
func (a *Attempt) hydrateUnwind(ctx context.Context) error {
	undone := map[string]struct{}{}
	for name, r := range a.records {
		switch r.Kind {
		case job.KindCompensation:
			if r.Status == job.StepCompleted {
				undone[strings.TrimPrefix(name, job.CompensationPrefix)] = struct{}{}
			}
		case job.KindUnwind:
			u, err := job.ParseUnwind(r.Output)
			if err != nil {
				return err
			}
			a.unwind = &unwinding{Unwind: u, failure: r.Error}
		}
	}
	if a.unwind == nil && a.p.Run.Attempt > a.p.Run.MaxAttempts {
		failure := Lapsed
		a.unwind = &unwinding{Unwind: job.UnwindFrom(a.p.Run), failure: failure}
		p := a.unwindRecord(a.unwind.Unwind, failure)
		p.Ref = a.p.Ref
		res, err := a.p.Queue.SaveStep(ctx, *p)
		if err != nil {
			return err
		}
		if !res.Landed {
			return a.lost()
		}
	}
	if a.unwind != nil {
		a.unwind.undone = undone
	}
	return nil
}

// engines reports whether a record is the engine's own: it replays nothing.
func engines(k job.StepKind) bool { return k == job.KindUnwind || k == job.KindCompensation }

// Compensates reports whether completed steps may be undone.
func (a *Attempt) Compensates() bool { return a.p.Compensates }

// Unwinding reports whether the attempt undoes, and what is known of that: the
// last attempt that did not, and what the run failed of. Once Hydrate has
// returned, any goroutine may ask.
func (a *Attempt) Unwinding() (u job.Unwind, failure job.Failure, yes bool) {
	if a.unwind == nil {
		return job.Unwind{}, job.Failure{}, false
	}
	return a.unwind.Unwind, a.unwind.failure, true
}

// Unwind is the record that makes every later attempt undo, if the job
// compensates and there may be something to undo; else nil. An attempt that failed
// before it asked for all its records, as it may have if it crashed, does not know
// what there is.
func (a *Attempt) Unwind(failure job.Failure, crashed bool) *store.StepParams {
	unseen := a.unvisited > 0 || crashed && len(a.records) > 0
	if !a.p.Compensates || a.unwind != nil || len(a.undo) == 0 && !unseen {
		return nil
	}
	return a.unwindRecord(job.UnwindFrom(a.p.Run), failure)
}

// UnwindUnseen is Unwind of an attempt whose guest does not stop: what it has to
// undo cannot be looked at, so that there may be nothing.
func (a *Attempt) UnwindUnseen(failure job.Failure) *store.StepParams {
	if !a.p.Compensates || a.unwind != nil {
		return nil
	}
	return a.unwindRecord(job.UnwindFrom(a.p.Run), failure)
}

func (a *Attempt) unwindRecord(u job.Unwind, failure job.Failure) *store.StepParams {
	output, err := json.Marshal(u)
	if err != nil { // an integer
		panic(err)
	}
	return &store.StepParams{
		Name: job.UnwindName, Kind: job.KindUnwind, Status: job.StepCompleted, Output: output, Error: &failure, Module: a.p.Module,
	}
}

// canUndo notes that the guest can undo a completed step.
func (a *Attempt) canUndo(name string, seq int) {
	a.undo = append(a.undo, undoable{name, seq})
}

// checkFlags refuses a compensator in a job that does not say it compensates:
// it would never run.
func (a *Attempt) checkFlags(name string, flags abi.StepFlags) error {
	if flags&abi.StepCompensated == 0 || a.p.Compensates {
		return nil
	}
	return &abi.Error{
		Code:    job.CodeCompensationUnknown,
		Message: fmt.Sprintf("step %q has a compensator, and job %s does not compensate", name, a.p.Run.Job),
		Fix:     "set compensates = true for the job, or leave the compensator out",
	}
}

// reserved refuses a name that an unwind needs for itself.
func (a *Attempt) reserved(fn, name string) error {
	if a.p.Compensates && (name == job.UnwindName || strings.HasPrefix(name, job.CompensationPrefix)) {
		return &abi.Violation{Func: fn, Detail: fmt.Sprintf("the name %q is the runner's own in a job that compensates", name)}
	}
	return nil
}

// over reports whether a record replays something that will not change any
// more; r is nil for none.
func (a *Attempt) over(r *record) bool {
	if r == nil {
		return false
	}
	switch r.Status {
	case job.StepCompleted, job.StepFailed, job.StepStarted, job.StepTimedOut:
		return true
	case job.StepSleeping:
		return !r.WakeAt.After(a.now())
	}
	return false
}

// refuseForward is the answer to whatever would begin while the run is undone.
func (a *Attempt) refuseForward(name string) error {
	if a.unvisited > 0 {
		return a.diverged(fmt.Sprintf("it asks for %q, which has no record, before %s", name, a.missing()))
	}
	return &abi.Refusal{Code: abi.CodeUnwinding, Failure: abi.Failure{
		Kind: abi.FailTerminal, Code: job.CodeCompensationFailed,
		Message: fmt.Sprintf("the run is being undone, and %q would be new", name),
		Fix:     "let the handler end; its compensators run after it",
	}}
}

// Compensate opens the undoing of the latest step that completed and is not
// undone; "" says that there is none, or that the run goes forward.
func (a *Attempt) Compensate(ctx context.Context) (string, error) {
	if !a.p.Compensates {
		return "", unsupported()
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if a.open.name != "" {
		return "", &abi.Violation{Func: abi.FuncCompensate, Detail: fmt.Sprintf("step %q is open", a.open.name)}
	}
	if a.unwind == nil {
		return "", nil
	}
	if err := a.Diverged(); err != nil {
		return "", err // some of what must be undone is not known
	}
	next, ok := a.nextUndo()
	if !ok {
		return "", nil
	}
	name := job.CompensationPrefix + next
	failed := 0
	if r := a.records[name]; r != nil {
		failed = r.Attempts
	}
	a.open = openStep{name: name, kind: job.KindCompensation, attempts: failed, began: time.Now(), span: a.beginSpan("compensate", next)}
	a.ceiling.start(name, a.policy(name))
	return next, nil
}

// nextUndo is the step to undo next: the last in the history first.
func (a *Attempt) nextUndo() (string, bool) {
	last := -1
	for i, u := range a.undo {
		if _, done := a.unwind.undone[u.name]; !done && (last < 0 || u.seq > a.undo[last].seq) {
			last = i
		}
	}
	if last < 0 {
		return "", false
	}
	return a.undo[last].name, true
}

// Undone reports whether an attempt that ended has undone all that is to be.
// Errors: X_JOB_COMPENSATION_FAILED, X_REPLAY_DIVERGED.
func (a *Attempt) Undone() error {
	if err := a.Diverged(); err != nil {
		return err
	}
	if name, left := a.nextUndo(); left {
		return &abi.Error{
			Code:    job.CodeCompensationFailed,
			Message: fmt.Sprintf("the handler ended without undoing step %q", name),
			Fix:     "undo each step that compensate names, until it names none",
		}
	}
	return nil
}
