package worker

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/retry"
	"github.com/jobrunner/runner/engine/step"
	"github.com/jobrunner/runner/engine/store"
)

// verdict is how an attempt is settled, or that it is not.
type verdict struct {
	params store.SettleParams
	// abandon says that nothing is written: the run is someone else's now.
	abandon bool
	letGo   bool // abandoned since it was cancelled, and it may be undone
	stop    retry.StopReason
	read    bool  // the run's history was
	err     error // cause for the log, beside params.Error
}

// judgement is what a verdict is made from. cause is why the attempt's context
// ended first, nil if it did not. job and memory are nil when the attempt ended
// before it had them.
type judgement struct {
	cause   error
	outcome abi.Outcome
	job     *manifest.Job
	memory  *step.Attempt
	module  string
	// stuck says that the guest does not stop: of memory only what any goroutine
	// may ask is for the verdict.
	stuck bool
}

// leftOpen is the record of the step that the attempt was cut off in, as far as
// it can be known.
func (in judgement) leftOpen(f abi.Failure) *store.StepParams {
	if in.memory == nil || in.stuck {
		return nil
	}
	return in.memory.LeftOpen(f)
}

// judge decides by the cause first and the outcome second: a guest that is
// stopped fails with all sorts of errors, and only the cause says why.
//
//	cause               done       suspended   anything else
//	none                completed  suspended   as the failure says
//	timeout, step's too failed     failed      failed, as a timeout
//	draining            completed  suspended   interrupted, uncounted
//	cancelled           nothing is written: the run has its verdict
//	lease lost          nothing is written: the run has another worker
//
// An attempt that undoes is judged by unwind.go.
func (a *attempt) judge(in judgement) verdict {
	switch abi.CodeOf(in.cause) {
	case job.CodeCancelled:
		return verdict{abandon: true, letGo: in.memory != nil && !in.stuck && in.memory.Compensates(), err: in.cause}
	case job.CodeLeaseLost:
		return verdict{abandon: true, err: in.cause}
	case job.CodeDraining:
		return a.unwindFirst(in, a.drained(in)).pinned(in)
	}
	if in.unwinding() {
		return a.unwound(in).pinned(in)
	}
	switch abi.CodeOf(in.cause) {
	case job.CodeTimeout, job.CodeStepTimeout:
		return a.unwindFirst(in, a.failed(in, failureOf(in.cause))).pinned(in)
	}
	return a.unwindFirst(in, a.undisturbed(in)).pinned(in)
}

// pinned completes a verdict with what every attempt of a guest leaves.
func (v verdict) pinned(in judgement) verdict {
	v.params.Module = in.module
	if in.memory != nil {
		v.params.Progress = in.memory.LastProgress()
		v.params.Invoked, v.read = in.memory.LiveChildren(), true
	}
	return v
}

// drained judges an attempt that the drain ended, or that ended just before.
func (a *attempt) drained(in judgement) verdict {
	var suspend *step.Suspend
	switch {
	case in.unwinding():
		if in.outcome.Kind == abi.Done || in.outcome.Kind == abi.Failed {
			return a.unwound(in)
		}
		// The run keeps the failure that it is undone for.
		return verdict{params: store.SettleParams{Ref: a.ref, Outcome: job.Interrupted, To: job.Ready}}
	case in.outcome.Kind == abi.Done || errors.As(in.outcome.Err, &suspend):
		return a.undisturbed(in)
	}
	failure := step.Bounded(failureOf(in.cause))
	return verdict{params: store.SettleParams{
		Ref: a.ref, Outcome: job.Interrupted, To: job.Ready, Error: &failure,
	}}
}

// stuck judges an attempt whose guest does not stop: by why it was told to, or
// by what it was about to be told.
func (a *attempt) stuck(cause error) verdict {
	if first := context.Cause(a.ctx); first != nil {
		cause = first
	}
	in := judgement{
		cause:   cause,
		outcome: abi.Outcome{Kind: abi.Stopped, Err: cause},
		job:     a.w.cfg.Deploy.Manifest().Jobs[a.run.Job],
		stuck:   true,
	}
	if served := a.serves.Load(); served != nil {
		in.job, in.memory = served, a.memory.Load()
	}
	return a.judge(in)
}

// undisturbed judges by the outcome alone.
func (a *attempt) undisturbed(in judgement) verdict {
	switch in.outcome.Kind {
	case abi.Done:
		return a.done(in)
	case abi.Failed:
		return a.failed(in, in.outcome.Failure)
	case abi.Crashed:
		v := a.failed(in, crash(in.outcome))
		v.err = in.outcome.Err
		return v
	}
	var suspend *step.Suspend
	if errors.As(in.outcome.Err, &suspend) {
		return verdict{params: store.SettleParams{
			Ref: a.ref, Outcome: job.Slept, To: job.Suspended, Step: suspend.Record, Invoke: suspend.Invoke,
		}}
	}
	var again *step.Retry
	if errors.As(in.outcome.Err, &again) {
		v := a.failed(judgement{job: in.job}, again.Failure)
		v.params.Step = again.Record
		if again.Policy != nil && v.params.Outcome == job.Retried {
			d := retry.Next(retry.Params{
				Policy: *again.Policy, Attempt: again.Failures, MaxAttempts: math.MaxInt,
				Kind: again.Failure.Kind, Wait: again.Failure.RetryAfter, Rand: loop.Uniform,
			})
			v.params.To, v.params.Delay = d.To, d.Delay
		}
		return v
	}
	if in.outcome.Err == nil {
		in.outcome.Err = &abi.Error{Code: abi.CodeHostFailure, Message: "the attempt was stopped without a reason"}
	}
	return a.failed(in, failureOf(in.outcome.Err))
}

// done checks a handler's output and path before it counts.
func (a *attempt) done(in judgement) verdict {
	output := in.outcome.Output
	if len(output) == 0 {
		output = []byte("null")
	}
	if err := wire.CheckJSON(output, abi.MaxOutput); err != nil {
		return a.failed(judgement{job: in.job}, abi.Failure{
			Kind: abi.FailTerminal, Code: job.CodeStepOutput,
			Message: fmt.Sprintf("the output of the run cannot be kept: %v", err),
			Fix:     "return a value that encodes as JSON of at most 1 MiB; keep large data elsewhere and return its address",
		})
	}
	if err := in.memory.Diverged(); err != nil {
		return a.failed(judgement{job: in.job}, failureOf(err))
	}
	return verdict{params: store.SettleParams{
		Ref: a.ref, Outcome: job.Completed, To: job.Done, Output: output, Retention: in.job.Retention,
	}}
}

// failed asks the policy what a failure means. The step that was open, if any,
// is recorded with the settle.
func (a *attempt) failed(in judgement, f abi.Failure) verdict {
	j := in.job
	d := a.decide(j, f)
	if f.Message == "" {
		f.Message = "the handler failed without a message"
	}
	if d.Stop == retry.Terminal {
		f = step.WithVerdict(f, step.Terminal)
	}
	failure := step.Bounded(f)
	v := verdict{stop: d.Stop, params: store.SettleParams{
		Ref: a.ref, Outcome: d.Outcome, To: d.To, Delay: d.Delay, Error: &failure,
	}}
	if d.To.Terminal() && j != nil {
		v.params.Retention = j.Retention
	}
	v.params.Step = in.leftOpen(f)
	return v
}

// decide is the one comparison that a retry, a dead letter and a step's
// failure go by.
func (a *attempt) decide(j *manifest.Job, f abi.Failure) retry.Decision {
	policy := job.DefaultRetry
	if j != nil {
		policy = j.Retry
	}
	return retry.Next(retry.Params{
		Policy: policy, Attempt: a.run.Attempt, MaxAttempts: a.run.MaxAttempts,
		Kind: f.Kind, Wait: f.RetryAfter, Rand: loop.Uniform,
	})
}

// crash is the failure of a guest that trapped or broke the contract. A
// violation that this side found has a code of its own.
func crash(out abi.Outcome) abi.Failure {
	var e *abi.Error
	if errors.As(out.Err, &e) && e.Code == job.CodeStepDuplicate {
		return failureOf(e)
	}
	return out.Failure
}

// failureOf is what is kept of an error of this process.
func failureOf(err error) abi.Failure {
	var e *abi.Error
	if errors.As(err, &e) {
		kind, _ := retry.Classify(e.Code) // unclassified is FailRetry, the zero kind
		return abi.Failure{Kind: kind, Code: e.Code, Message: e.Message, Fix: e.Fix}
	}
	var v *abi.Violation
	switch {
	case errors.As(err, &v):
		return abi.Failure{Kind: abi.FailTerminal, Code: abi.CodeABIViolation, Message: v.Error(), Fix: v.Fix}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return abi.Failure{Code: abi.CodeHostFailure, Message: "the attempt was stopped: " + err.Error()}
	}
	return abi.Failure{Code: job.CodeInternal, Message: err.Error()}
}
