package step

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Publish sends an event. Inside a step it is published by the write that records
// the step; a step that fails publishes nothing. Outside, the call is itself a
// recorded step, named after the topic and the number of the call. The event has
// its id from the start, so that a write which is repeated publishes once.
func (a *Attempt) Publish(ctx context.Context, e abi.PublishParams) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return &abi.Error{Code: job.CodeInternal, Message: "no random bytes for an id", Err: err}
	}
	event := store.EventParams{
		ID: id.String(), Topic: e.Topic, Key: e.Key, Payload: append([]byte(nil), e.Payload...), Keep: a.p.EventKeep, Run: a.p.Run.ID, By: a.p.Run.Job,
		Tenant: a.p.Run.Tenant, // a handler is told by its input what to publish: it reaches no other tenant's runs
	}
	if a.open.name != "" {
		return a.publishInside(event)
	}
	name := a.sendName("publish:", e.Topic)
	if err := a.enter(ctx, abi.FuncPublish, name); err != nil {
		return err
	}
	r, err := a.visit(name, job.KindPublish)
	if err != nil {
		return err
	}
	if r != nil {
		a.at(r.FinishedAt)
		return nil
	}
	res, err := a.p.Queue.SaveStep(ctx, store.StepParams{
		Ref: a.p.Ref, Name: name, Kind: job.KindPublish, Status: job.StepCompleted, Module: a.p.Module,
		Output: strconv.AppendQuote(nil, event.ID), Publish: []store.EventParams{event},
	})
	if err != nil {
		return err
	}
	if !res.Landed {
		return a.lost()
	}
	a.count++
	a.recorded += len(name) + len(event.ID)
	a.at(res.At)
	return nil
}

// publishInside adds to what the open step will commit.
func (a *Attempt) publishInside(e store.EventParams) error {
	bytes := a.open.bytes + len(e.Payload) + len(e.Topic) + len(e.Key)
	if len(a.open.publish) == abi.MaxEnqueue || bytes > maxStepBytes {
		return &abi.Refusal{Code: abi.CodeLimit, Failure: abi.Failure{
			Kind:    abi.FailTerminal,
			Message: fmt.Sprintf("a step publishes at most %d events, and sends %d bytes in all", abi.MaxEnqueue, maxStepBytes),
			Fix:     "publish them from several steps",
		}}
	}
	a.open.publish, a.open.bytes = append(a.open.publish, e), bytes
	return nil
}
