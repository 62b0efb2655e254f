package step

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/retry"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// drainPatience is how long a step that ends during a drain may take to be
// recorded. The drain's own margin is at least two seconds.
const drainPatience = time.Second

// StepEnd records the open step's output and answers once it is durable,
// together with the runs that the step enqueued.
func (a *Attempt) StepEnd(ctx context.Context, output []byte) (time.Time, error) {
	if a.open.name == "" {
		return time.Time{}, &abi.Violation{Func: abi.FuncStepEnd, Detail: "no step is open"}
	}
	a.ceiling.stop()
	if ctx.Err() != nil {
		if abi.CodeOf(context.Cause(ctx)) != job.CodeDraining {
			return time.Time{}, context.Cause(ctx)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), drainPatience)
		defer cancel()
	}
	if len(output) == 0 {
		output = []byte("null")
	}
	if err := wire.CheckJSON(output, abi.MaxOutput); err != nil {
		return time.Time{}, &abi.Error{
			Code:    job.CodeStepOutput,
			Message: fmt.Sprintf("the output of step %q cannot be recorded: %v", a.open.name, err),
			Fix:     "return a value that encodes as JSON of at most 1 MiB; keep large data elsewhere and return its address",
			Err:     err,
		}
	}
	kind := a.open.kind
	if a.open.undoable {
		kind = job.KindUndoable // by which a cancel knows
	}
	res, err := a.p.Queue.SaveStep(ctx, store.StepParams{
		Ref: a.p.Ref, Name: a.open.name, Kind: kind, Status: job.StepCompleted,
		Attempts: a.open.attempts,
		// The write may outlive this call when ctx ends first; the bytes are the
		// caller's.
		Output:  bytes.Clone(output),
		Elapsed: time.Since(a.open.began),
		Module:  a.pin(),
		New:     a.open.fresh,
		Enqueue: a.open.enqueue,
		Publish: a.open.publish,
	})
	if err != nil {
		a.open.unsure = true
		return time.Time{}, err
	}
	if !res.Landed {
		return time.Time{}, a.lost()
	}
	a.pinned = true
	a.deduped(ctx, res.Enqueued)
	a.recorded += weight(a.open.name, output, nil)
	if a.open.undoable {
		a.canUndo(a.open.name, math.MaxInt)
	}
	if a.open.kind == job.KindCompensation {
		a.unwind.undone[strings.TrimPrefix(a.open.name, job.CompensationPrefix)] = struct{}{}
	}
	a.open.ended(trace.EndParams{})
	a.open = openStep{}
	a.p.Metrics.Step(metrics.StepRun)
	return a.at(res.At), nil
}

// StepFail decides what becomes of a failed step: while the run has attempts
// left its error is a *Retry, and nothing is recorded until the run's settle;
// a final failure is recorded now, what the step enqueued is forgotten, and
// the handler goes on. The failure of a compensator always unwinds the guest:
// what it means is decided with the settle.
func (a *Attempt) StepFail(ctx context.Context, f abi.Failure) (time.Time, error) {
	if a.open.name == "" {
		return time.Time{}, &abi.Violation{Func: abi.FuncStepFail, Detail: "no step is open"}
	}
	a.ceiling.stop()
	if ctx.Err() != nil {
		return time.Time{}, context.Cause(ctx)
	}
	if a.open.kind == job.KindCompensation || !a.p.Final(f) && !a.exhausted(f) {
		a.p.Metrics.Step(metrics.StepRetried)
		return time.Time{}, a.again(f)
	}
	failure := Bounded(f)
	res, err := a.p.Queue.SaveStep(ctx, store.StepParams{
		Ref: a.p.Ref, Name: a.open.name, Kind: job.KindStep, Status: job.StepFailed,
		Attempts: a.open.attempts + 1, Error: &failure,
		Elapsed: time.Since(a.open.began), Module: a.p.Module,
	})
	switch {
	case ctx.Err() != nil && err != nil:
		return time.Time{}, context.Cause(ctx)
	case err != nil:
		// The handler must not go on from a failure that a replay would not
		// know, and the step's own words outrank the store's.
		return time.Time{}, a.again(f)
	case !res.Landed:
		return time.Time{}, a.lost()
	}
	a.recorded += weight(a.open.name, nil, &failure)
	a.open.ended(trace.EndParams{Failed: true, Code: failure.Code})
	a.open = openStep{}
	a.p.Metrics.Step(metrics.StepFailed)
	return a.at(res.At), nil
}

// exhausted reports whether f is the last failure that the open step's own
// policy allows.
func (a *Attempt) exhausted(f abi.Failure) bool {
	return a.open.retry != nil && f.Kind != abi.FailRateLimited && retry.Final(a.open.attempts+1, a.open.retry.Attempts)
}

// again unwinds the guest of a step that is to be tried again.
func (a *Attempt) again(f abi.Failure) *Retry {
	return &Retry{Step: a.open.name, Failure: f, Record: a.retrying(f), Policy: a.open.retry, Failures: a.open.attempts + 1}
}

// retrying is the record of the open step that is to be run again.
func (a *Attempt) retrying(f abi.Failure) *store.StepParams {
	failure := Bounded(f)
	return &store.StepParams{
		Name: a.open.name, Kind: a.open.kind, Status: job.StepRetrying,
		Attempts: a.open.attempts + 1, Error: &failure,
		Elapsed: time.Since(a.open.began), Module: a.p.Module,
	}
}

// LeftOpen is the record of a step that was cut off by a trap or a deadline, to
// be written with the settle; nil if none was open. A once step keeps its
// record: nobody knows whether its effect happened. So does a step whose end
// may have been recorded: overwriting it would run it, and what it enqueued,
// again.
func (a *Attempt) LeftOpen(f abi.Failure) *store.StepParams {
	a.ceiling.stop()
	if a.open.name == "" || a.open.once || a.open.unsure {
		return nil
	}
	record := a.retrying(f)
	if a.open.kind == job.KindStep && a.exhausted(f) {
		record.Status = job.StepFailed // the next attempt hands it to the handler
	}
	return record
}

// Retry is the error that unwinds a guest whose step failed while the run has
// attempts left, or whose final failure could not be recorded. Record goes
// into the settle.
type Retry struct {
	Step    string
	Failure abi.Failure
	Record  *store.StepParams
	// Policy is the step's own, by which it waits; nil is the run's. Failures are
	// how often its body has failed.
	Policy   *job.RetryPolicy
	Failures int
}

func (r *Retry) Error() string {
	return fmt.Sprintf("step %q is to be tried again: %s", r.Step, r.Failure.Message)
}

// Suspend is the error that unwinds a guest which waits: for a time or an event,
// with a Record, or for children, with Invoke. They go into the settle.
type Suspend struct {
	Record *store.StepParams
	Invoke *store.InvokeParams
}

func (s *Suspend) Error() string {
	if s.Record == nil {
		return "suspended in an invoke"
	}
	return fmt.Sprintf("suspended in %q", s.Record.Name)
}
