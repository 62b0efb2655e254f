package step

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// maxStepEnqueues and maxStepBytes bound what one step may enqueue in all its
// calls: it is held in this process until the step ends, and is one write then.
const (
	maxStepEnqueues = queue.MaxEnqueue
	maxStepBytes    = abi.MaxEnqueueBytes
)

// Enqueue asks for runs. Inside a step they are checked now, get their ids now
// and are inserted by the write that records the step; a step that fails
// leaves none. Outside, the call is itself a recorded step, named after the job
// and the number of the call, so that a replay answers the first ids.
func (a *Attempt) Enqueue(ctx context.Context, runs []abi.EnqueueParams) ([]abi.EnqueueResult, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if len(runs) == 0 {
		return []abi.EnqueueResult{}, nil
	}
	if len(runs) > abi.MaxEnqueue || len(a.open.enqueue)+len(runs) > maxStepEnqueues {
		return nil, &abi.Refusal{Code: abi.CodeLimit, Failure: abi.Failure{
			Kind: abi.FailTerminal, Message: fmt.Sprintf("an enqueue has %d runs; at most %d go in one call and %d in one step", len(runs), abi.MaxEnqueue, maxStepEnqueues),
			Fix: "enqueue them from several steps",
		}}
	}
	if a.open.name != "" {
		bytes := a.open.bytes
		for i := range runs {
			bytes += size(&runs[i])
		}
		if bytes > maxStepBytes {
			return nil, &abi.Refusal{Code: abi.CodeLimit, Failure: abi.Failure{
				Kind: abi.FailTerminal, Message: fmt.Sprintf("what this step enqueues has %d bytes; at most %d go in one step", bytes, maxStepBytes),
				Fix: "enqueue them from several steps, or store the data elsewhere and pass references",
			}}
		}
		return a.enqueueInside(ctx, runs)
	}
	return a.enqueueOutside(ctx, runs)
}

// prepare checks runs by the rules of every enqueue. A bad one is the guest's
// to handle.
func (a *Attempt) prepare(kind string, runs []abi.EnqueueParams) (prepared []store.EnqueueParams, err error) {
	parent, span := a.asked(kind, len(runs))
	if span != nil {
		defer func() { span.End(trace.EndParams{Failed: err != nil}) }()
	}
	requests := make([]queue.Request, len(runs))
	for i := range runs {
		r := &runs[i]
		requests[i] = queue.Request{
			Job: r.Job, Input: append([]byte(nil), r.Input...), Key: r.Key, Tenant: r.Tenant,
			RunAt: r.RunAt, Delay: time.Duration(r.DelayMS) * time.Millisecond, Priority: r.Priority,
			Parent: a.p.Run.ID, EnqueuedBy: a.p.Run.EnqueuedBy, Traceparent: parent,
		}
	}
	prepared, err = a.p.Queue.Prepare(requests)
	var e *abi.Error
	if errors.As(err, &e) && e.Code != job.CodeInternal {
		return nil, &abi.Refusal{Code: abi.CodeInvalid, Failure: abi.Failure{
			Kind: abi.FailTerminal, Message: e.Message, Code: e.Code, Fix: e.Fix,
		}}
	}
	return prepared, err
}

// enqueueInside adds to what the open step will commit. The answer is given
// before the commit decides, so a live holder of a key is looked up: its run
// stands for the request even if it ends before the step does. A holder that
// appears in between is found by the commit, and reported.
func (a *Attempt) enqueueInside(ctx context.Context, runs []abi.EnqueueParams) ([]abi.EnqueueResult, error) {
	prepared, err := a.prepare("enqueue", runs)
	if err != nil {
		return nil, err
	}
	results := make([]abi.EnqueueResult, len(prepared))
	kept, bytes := a.open.enqueue, a.open.bytes
	for i := range prepared {
		p := &prepared[i]
		holder := heldBy(kept, p)
		if holder == "" {
			if holder, err = a.p.Queue.FindLive(ctx, p); err != nil {
				return nil, err
			}
		}
		if holder != "" {
			results[i] = abi.EnqueueResult{ID: holder, Deduped: true}
			continue
		}
		results[i] = abi.EnqueueResult{ID: p.ID}
		kept = append(kept, *p)
		bytes += size(&runs[i])
	}
	a.open.enqueue, a.open.bytes = kept, bytes
	return results, nil
}

// size is about what a run to be enqueued keeps, in bytes.
func size(r *abi.EnqueueParams) int { return len(r.Input) + len(r.Key) + len(r.Tenant) }

// heldBy is the id of an entry that will hold p's key once it is inserted.
func heldBy(entries []store.EnqueueParams, p *store.EnqueueParams) string {
	for i := range entries {
		e := &entries[i]
		if e.Key == p.Key && e.Job == p.Job && e.Tenant == p.Tenant {
			return e.ID
		}
	}
	return ""
}

// deduped reports runs whose ids were answered inside a step and which then
// met a live holder of their key at its commit.
func (a *Attempt) deduped(ctx context.Context, results []store.EnqueueResult) {
	for i, r := range results {
		if r.Deduped && r.ID != a.open.enqueue[i].ID {
			a.p.Logger.LogAttrs(ctx, slog.LevelWarn, "jobs.enqueue.late-dedupe",
				slog.String("run", a.p.Run.ID), slog.String("step", a.open.name),
				slog.String("answered", a.open.enqueue[i].ID), slog.String("holder", r.ID))
		}
	}
}

// enqueueOutside is a step of its own.
func (a *Attempt) enqueueOutside(ctx context.Context, runs []abi.EnqueueParams) ([]abi.EnqueueResult, error) {
	name := a.sendName("enqueue:", runs[0].Job)
	if err := a.enter(ctx, abi.FuncEnqueue, name); err != nil {
		return nil, err
	}
	r := a.records[name]
	if r == nil && a.unwind != nil {
		return nil, a.refuseForward(name)
	}
	if r == nil {
		// Checked before the record is begun: a refused enqueue leaves none, and
		// will be refused by a replay as well unless the manifest changes.
		prepared, err := a.prepare("enqueue", runs)
		if err != nil {
			return nil, err
		}
		if _, err := a.visit(name, job.KindEnqueue); err != nil {
			return nil, err
		}
		return a.commitEnqueue(ctx, name, prepared)
	}
	if _, err := a.visit(name, job.KindEnqueue); err != nil {
		return nil, err
	}
	results, err := wire.ReadEnqueued(r.Output)
	if err != nil || len(results) != len(runs) {
		return nil, a.diverged(fmt.Sprintf("%q recorded another number of runs than it asks for now", name))
	}
	a.at(r.FinishedAt)
	return results, nil
}

// sendName numbers the calls of a kind that are about the same, from 1.
func (a *Attempt) sendName(kind, about string) string {
	if a.sends == nil {
		a.sends = make(map[string]int)
	}
	name := kind + about
	a.sends[name]++
	return name + ":" + strconv.Itoa(a.sends[name])
}

// enqueuedBytes is about what an entry of such a record takes: {"id":"…"}.
const enqueuedBytes = 48

func (a *Attempt) commitEnqueue(ctx context.Context, name string, prepared []store.EnqueueParams) ([]abi.EnqueueResult, error) {
	res, err := a.p.Queue.SaveStep(ctx, store.StepParams{
		Ref: a.p.Ref, Name: name, Kind: job.KindEnqueue, Status: job.StepCompleted,
		Module: a.p.Module, Enqueue: prepared, OutputEnqueued: true,
	})
	if err != nil {
		return nil, err
	}
	if !res.Landed {
		return nil, a.lost()
	}
	a.count++
	a.recorded += len(name) + len(res.Enqueued)*enqueuedBytes
	a.at(res.At)
	results := make([]abi.EnqueueResult, len(res.Enqueued))
	for i, r := range res.Enqueued {
		results[i] = abi.EnqueueResult{ID: r.ID, Deduped: r.Deduped && r.ID != prepared[i].ID}
	}
	return results, nil
}
