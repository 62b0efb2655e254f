package step

import (
	"context"
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/store"
)

// StepBegin opens the step name or answers its record.
func (a *Attempt) StepBegin(ctx context.Context, name string, flags abi.StepFlags) (abi.StepBegun, error) {
	if a.open.name != "" {
		return abi.StepBegun{}, &abi.Violation{
			Func:   abi.FuncStepBegin,
			Detail: fmt.Sprintf("step %q began inside step %q", name, a.open.name),
			Fix:    "let the handler take one step after the other, none inside another's function",
		}
	}
	if err := a.enter(ctx, abi.FuncStepBegin, name); err != nil {
		return abi.StepBegun{}, err
	}
	if err := a.checkFlags(name, flags); err != nil {
		return abi.StepBegun{}, err
	}
	r, err := a.visit(name, job.KindStep)
	if err != nil {
		return abi.StepBegun{}, err
	}
	attempts := 0
	if r != nil {
		switch r.Status {
		case job.StepCompleted:
			a.p.Metrics.Step(metrics.StepReplayed)
			if flags&abi.StepCompensated != 0 {
				a.canUndo(name, r.Seq)
			}
			return abi.StepBegun{State: abi.StepDone, Record: r.Output, At: a.at(r.FinishedAt)}, nil
		case job.StepFailed:
			a.p.Metrics.Step(metrics.StepReplayed)
			return abi.StepBegun{State: abi.StepFailed, Record: encodeFailure(r.Error), At: a.at(r.FinishedAt)}, nil
		case job.StepStarted:
			return abi.StepBegun{}, outcomeUnknown(name, r.StartedAt)
		}
		attempts = r.Attempts
	}
	if flags&abi.StepOnce != 0 {
		if err := a.recordStart(ctx, name, attempts); err != nil {
			return abi.StepBegun{}, err
		}
	}
	if r == nil {
		a.count++
	}
	once := flags&abi.StepOnce != 0
	a.open = openStep{
		name: name, kind: job.KindStep, once: once, fresh: r == nil && !once, undoable: flags&abi.StepCompensated != 0,
		attempts: attempts, began: time.Now(), span: a.beginSpan("step", name),
	}
	a.ceiling.start(name, a.policy(name))
	return abi.StepBegun{State: abi.StepRun}, nil
}

// policy gives the open step its own retry policy, and answers what cuts it.
func (a *Attempt) policy(name string) (timeout time.Duration) {
	if a.p.Policy == nil {
		return 0
	}
	timeout, a.open.retry = a.p.Policy(name)
	return timeout
}

// recordStart makes the start of a once step durable before its body may run.
func (a *Attempt) recordStart(ctx context.Context, name string, attempts int) error {
	res, err := a.p.Queue.SaveStep(ctx, store.StepParams{
		Ref: a.p.Ref, Name: name, Kind: job.KindStep, Status: job.StepStarted,
		Attempts: attempts, Module: a.p.Module,
	})
	if err != nil {
		return err
	}
	if !res.Landed {
		return a.lost()
	}
	return nil
}

func outcomeUnknown(name string, started time.Time) error {
	return &abi.Error{
		Code: job.CodeStepOutcomeUnknown,
		Message: fmt.Sprintf("step %q runs at most once; it began at %s and nothing is known of its end",
			name, started.UTC().Format(time.RFC3339)),
		Fix: "find out whether its effect happened, then retry the run from that step to do it again, or finish by hand",
	}
}

// encodeFailure is the JSON that a replayed failure is answered with.
func encodeFailure(f job.Failure) []byte {
	return wire.AppendFailure(nil, abi.Failure{Message: f.Message, Code: f.Code, Fix: f.Fix, Stack: f.Stack})
}
