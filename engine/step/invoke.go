package step

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Invoke makes child runs and answers how they ended once all have; until then
// its error is a *Suspend, which starts as many more as limit allows. Each child
// is a record, named after its job and the number of the call, that the child's
// own end completes.
//
// A run that has more children to start is woken when a quarter of the limit is
// free, not at each end: every wake replays the handler.
func (a *Attempt) Invoke(ctx context.Context, runs []abi.EnqueueParams, limit int) ([]abi.InvokeResult, time.Time, error) {
	if a.open.name != "" {
		return nil, time.Time{}, outsideOnly("an invoke", "invoke", a.open.name)
	}
	if len(runs) > abi.MaxEnqueue {
		return nil, time.Time{}, &abi.Refusal{Code: abi.CodeLimit, Failure: abi.Failure{
			Kind: abi.FailTerminal, Message: fmt.Sprintf("an invoke has %d runs; at most %d go in one call", len(runs), abi.MaxEnqueue),
			Fix: "invoke them in several calls",
		}}
	}
	limit = max(1, min(limit, abi.MaxInvoke))
	results := make([]abi.InvokeResult, len(runs))
	names := make([]string, len(runs))
	var start []int
	var last time.Time
	live := 0
	for i := range runs {
		names[i] = a.sendName("invoke:", runs[i].Job)
		if err := a.enter(ctx, abi.FuncInvoke, names[i]); err != nil {
			return nil, time.Time{}, err
		}
		r := a.records[names[i]]
		if r == nil || r.Status == job.StepRetrying {
			start = append(start, i)
			continue
		}
		if _, err := a.visit(names[i], job.KindInvoke); err != nil {
			return nil, time.Time{}, err
		}
		switch r.Status {
		case job.StepWaiting:
			live++
		case job.StepCompleted:
			results[i].Output = r.Output
		default:
			results[i].Failure = childFailure(r.Error)
		}
		if r.Status != job.StepWaiting && r.FinishedAt.After(last) {
			last = r.FinishedAt
		}
	}
	if live == 0 && len(start) == 0 {
		if last.After(a.clock) {
			a.at(last)
		}
		return results, a.clock, nil
	}
	if len(start) > 0 && a.p.Run.Parent != "" && a.unwind == nil {
		if err := a.checkDepth(ctx); err != nil {
			return nil, time.Time{}, err
		}
	}
	suspend, err := a.startChildren(runs, names, start, live, limit)
	if err != nil {
		return nil, time.Time{}, err
	}
	return nil, time.Time{}, suspend
}

// checkDepth refuses children to a run that too many wait for in a row: one that
// invokes itself would go on until the disk is full.
func (a *Attempt) checkDepth(ctx context.Context) error {
	depth, err := a.p.Queue.InvokeDepth(ctx, a.p.Run.ID, abi.MaxInvokeDepth)
	if err != nil || depth < abi.MaxInvokeDepth {
		return err
	}
	return &abi.Refusal{Code: abi.CodeLimit, Failure: abi.Failure{
		Kind: abi.FailTerminal, Message: fmt.Sprintf("%d runs wait for this one, each for the next; it cannot invoke any", abi.MaxInvokeDepth),
		Fix: "let a job that invokes itself come to an end sooner, or enqueue what nobody waits for",
	}}
}

// childFailure is how a child's end is answered. The verdict on the child is not
// its parent's, and would be repeated at every level of a family.
func childFailure(f job.Failure) *abi.Failure {
	out := &abi.Failure{Kind: abi.FailTerminal, Message: strings.TrimSuffix(f.Message, Terminal), Code: f.Code, Fix: f.Fix}
	if out.Message == "" {
		out.Message = "the child failed without a message"
	}
	return out
}

// startChildren prepares the next children, within the limit.
func (a *Attempt) startChildren(runs []abi.EnqueueParams, names []string, start []int, live, limit int) (*Suspend, error) {
	if a.unwind != nil && len(start) > 0 {
		return nil, a.refuseForward(names[start[0]])
	}
	next := start[:min(len(start), max(limit-live, 0))]
	invoke := &store.InvokeParams{Timed: slices.ContainsFunc(runs, func(r abi.EnqueueParams) bool { return r.TimeoutMS > 0 })}
	if len(next) > 0 {
		// All of them are checked before the first is started: a refusal then
		// leaves none behind.
		check := next
		if len(start) == len(runs) {
			check = start
		}
		if err := a.roomFor(names, start); err != nil {
			return nil, err
		}
		asked := make([]abi.EnqueueParams, len(check))
		for n, i := range check {
			asked[n] = runs[i]
		}
		prepared, err := a.prepare("invoke", asked)
		if err != nil {
			return nil, err
		}
		for n, i := range next {
			if a.records[names[i]] == nil {
				if err := a.newRecord(names[i]); err != nil {
					return nil, err
				}
				a.count++
			}
			invoke.Start = append(invoke.Start, store.ChildParams{
				Name: names[i], Run: prepared[n], Abandon: runs[i].Abandon, Retention: a.p.Queue.Retention(runs[i].Job),
				Timeout: time.Duration(runs[i].TimeoutMS) * time.Millisecond,
			})
		}
	}
	if len(next) < len(start) {
		invoke.Most = limit - max(1, limit/4)
	}
	return &Suspend{Invoke: invoke}, nil
}

// roomFor refuses children of which the last would have no record left.
func (a *Attempt) roomFor(names []string, start []int) error {
	fresh := 0
	for _, i := range start {
		if a.records[names[i]] == nil {
			fresh++
		}
	}
	if a.count+fresh <= abi.MaxSteps {
		return nil
	}
	return &abi.Error{
		Code: job.CodeStepsExceeded,
		Message: fmt.Sprintf("a run has at most %d steps and each child is one; this has %d, and %d children from %q on would be more",
			abi.MaxSteps, a.count, fresh, names[start[0]]),
		Fix: "let children invoke children of their own, or enqueue what nobody waits for",
	}
}

// LiveChildren reports whether the run has invoked children that have not ended,
// as far as this attempt knows.
func (a *Attempt) LiveChildren() bool { return a.children > 0 }
