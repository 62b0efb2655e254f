package store

import (
	"encoding/json"
	"fmt"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// Resumed is how a run goes on being undone that stopped half undone.
type Resumed struct {
	Output  []byte      // of its record of job.KindUnwind from now on
	Failure job.Failure // which it had when that was written, and has again
}

// Resume is how a finished run goes on that is requeued, by which every store goes:
// undoing, or forward from its records if that is nil. One that undoes has had its
// own attempts (its Attempt becomes its MaxAttempts, which p has set by then), so
// that it has as many again, whatever it had before.
// Errors: X_JOB_NOT_REQUEUEABLE for a live run, and one that was undone (ErrUndone).
func (p RequeueParams) Resume(r *job.Run, u ToUndo) (*Resumed, error) {
	switch {
	case !r.State.Requeueable():
		return nil, &abi.Error{
			Code:    job.CodeNotRequeueable,
			Message: fmt.Sprintf("run %s is %s, not finished", r.ID, r.State),
			Fix:     "cancel it first, or let it end",
		}
	case u.Unwind == nil:
		return nil, nil
	}
	half := u.Left && r.StoppedUndoing(*u.Failure)
	if half && !p.NoCompensate && p.FromStep == "" {
		unwind, err := job.ParseUnwind(u.Unwind)
		if err != nil {
			return nil, err
		}
		unwind.From = r.MaxAttempts
		if p.Attempts > 0 {
			unwind.From = p.Attempts
		}
		output, err := json.Marshal(unwind)
		if err != nil {
			return nil, err
		}
		return &Resumed{Output: output, Failure: *u.Failure}, nil
	}
	refused := &abi.Error{
		Code:    job.CodeNotRequeueable,
		Message: fmt.Sprintf("run %s is %s, and its steps were undone", r.ID, r.State),
		Fix:     "retry it without naming a step: a fresh run begins in its place",
		Err:     ErrUndone,
	}
	if half {
		refused.Message = fmt.Sprintf("run %s is %s, and some of its steps were undone", r.ID, r.State)
		refused.Fix = "retry it without naming a step: the rest is undone; or with --no-compensate: a fresh run begins in its place"
	}
	return nil, refused
}

// RestartParams enqueues Run in place of the run whose id is Of.
type RestartParams struct {
	Of     string
	Run    EnqueueParams
	By     string
	Detail string // what of it is not the usual, for the audit
}

// Audit answers the entries of both runs.
func (p RestartParams) Audit() [2]AuditEntry {
	entry := func(subject, what string) AuditEntry {
		if p.Detail != "" {
			what += ", " + p.Detail
		}
		return AuditEntry{By: p.By, Verb: AuditRetry, Kind: AuditRun, Subject: subject, Detail: what}
	}
	return [2]AuditEntry{entry(p.Of, "run "+p.Run.ID+" in its place"), entry(p.Run.ID, "in place of run "+p.Of)}
}
