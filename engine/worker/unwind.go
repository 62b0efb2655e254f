package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/retry"
	"github.com/jobrunner/runner/engine/step"
	"github.com/jobrunner/runner/engine/store"
)

// unwinding reports whether the attempt undid.
func (in judgement) unwinding() bool {
	if in.memory == nil {
		return false
	}
	_, _, yes := in.memory.Unwinding()
	return yes
}

// unwindFirst turns a verdict that ends a run for good into one that has it
// undone first, if its job compensates and there may be something to undo. The
// decision is recorded with the settle: from then on every attempt undoes.
func (a *attempt) unwindFirst(in judgement, v verdict) verdict {
	if v.abandon || in.memory == nil || v.params.Error == nil || v.params.To != job.Dead && v.params.To != job.Failed {
		return v
	}
	record := in.memory.UnwindUnseen(*v.params.Error)
	if !in.stuck {
		record = in.memory.Unwind(*v.params.Error, in.outcome.Kind != abi.Failed)
	}
	if record == nil {
		return v
	}
	p := &v.params
	p.Outcome, p.To, p.Delay, p.Retention, p.Step = job.Unwinding, job.Ready, 0, 0, record
	return v
}

// unwound judges an attempt that undid.
//
//	all undone          dead or failed, with the failure that the run had
//	a step failed       tried again, as the policy says, with that failure kept
//	for good            dead or failed with X_JOB_COMPENSATION_FAILED, and both told
func (a *attempt) unwound(in judgement) verdict {
	if in.cause != nil {
		return a.undoFailed(in, failureOf(in.cause), in.leftOpen(failureOf(in.cause)))
	}
	switch in.outcome.Kind {
	case abi.Done, abi.Failed:
		if err := in.memory.Undone(); err != nil {
			return a.undoFailed(in, failureOf(err), nil)
		}
		return a.undone(in)
	case abi.Crashed:
		f := crash(in.outcome)
		v := a.undoFailed(in, f, in.leftOpen(f))
		v.err = in.outcome.Err
		return v
	}
	var again *step.Retry
	if errors.As(in.outcome.Err, &again) {
		return a.undoFailed(in, again.Failure, again.Record)
	}
	if in.outcome.Err == nil {
		in.outcome.Err = &abi.Error{Code: abi.CodeHostFailure, Message: "the attempt was stopped without a reason"}
	}
	f := failureOf(in.outcome.Err)
	return a.undoFailed(in, f, in.leftOpen(f))
}

// undone ends a run that has been undone, as its own failure would have, or as
// cancelled with the error that the cancel left.
func (a *attempt) undone(in judgement) verdict {
	u, failure, _ := in.memory.Unwinding()
	if u.Cancelled {
		a.w.cfg.Logger.Info("jobs.unwind.completed", slog.String("run", a.run.ID), slog.String("job", a.run.Job), slog.String("code", job.CodeCancelled))
		return verdict{params: store.SettleParams{Ref: a.ref, Outcome: job.Undone, To: job.Cancelled, Retention: in.job.Retention}}
	}
	d := retry.Next(retry.Params{Policy: in.job.Retry, Kind: abi.FailTerminal})
	a.w.cfg.Logger.Warn("jobs.unwind.completed", slog.String("run", a.run.ID), slog.String("job", a.run.Job), slog.String("code", failure.Code))
	return verdict{params: store.SettleParams{
		Ref: a.ref, Outcome: d.Outcome, To: d.To, Error: &failure, Retention: in.job.Retention,
	}}
}

// undoFailed asks the policy what a failure to undo means: an unwind has as many
// attempts as the handler had.
func (a *attempt) undoFailed(in judgement, f abi.Failure, record *store.StepParams) verdict {
	u, failure, _ := in.memory.Unwinding()
	d := retry.Next(retry.Params{
		Policy: in.job.Retry, Attempt: a.run.Attempt - u.From, MaxAttempts: a.run.MaxAttempts,
		Kind: f.Kind, Wait: f.RetryAfter, Rand: loop.Uniform,
	})
	attrs := []slog.Attr{
		slog.String("run", a.run.ID), slog.String("job", a.run.Job), slog.Int("attempt", a.run.Attempt), slog.String("code", f.Code),
	}
	if d.Stop == retry.NotStopped {
		a.w.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "jobs.unwind.retried", attrs...)
		return verdict{params: store.SettleParams{Ref: a.ref, Outcome: d.Outcome, To: d.To, Delay: d.Delay, Step: record}}
	}
	a.w.cfg.Logger.LogAttrs(context.Background(), slog.LevelError, "jobs.unwind.failed", attrs...)
	if record != nil {
		record.Status = job.StepFailed
	}
	was := "failed"
	if failure.Code == job.CodeCancelled {
		was = "been cancelled"
	}
	both := step.Bounded(abi.Failure{
		Code:    job.CodeCompensationFailed,
		Message: fmt.Sprintf("the run could not be undone: %s; it had %s: %s", described(f.Code, f.Message), was, described(failure.Code, failure.Message)),
		Fix:     "correct what failed and have the rest undone with `runner jobs retry " + a.run.ID + "`; `runner jobs show` names what is left",
		Stack:   f.Stack,
	})
	return verdict{stop: retry.Terminal, params: store.SettleParams{
		Ref: a.ref, Outcome: d.Outcome, To: d.To, Error: &both, Retention: in.job.Retention, Step: record,
	}}
}

// described is a failure in one line.
func described(code, message string) string {
	if code == "" {
		return message
	}
	return code + ": " + message
}
