package queue

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Settle ends an attempt with one fenced write and answers whether it landed.
// While the store is away, full, read-only or denies it, it tries again until ctx
// ends, which the caller sets to the end of the lease: after that someone else has the run. It never turns
// a write that failed into another verdict.
func (q *Queue) Settle(ctx context.Context, p store.SettleParams) (store.SettleResult, error) {
	if q.together {
		r, err := q.records.do(ctx, record{settle: &p})
		return r.settle, err
	}
	return q.settles.do(ctx, p)
}

// SettleThen is Settle for a caller who does not wait. done is called once, on
// the goroutine that writes, and must not block.
func (q *Queue) SettleThen(ctx context.Context, p store.SettleParams, done func(store.SettleResult, error)) {
	if q.together {
		q.records.submit(ctx, record{settle: &p}, func(r recorded, err error) { done(r.settle, err) })
		return
	}
	q.settles.submit(ctx, p, done)
}

// SaveStep writes one step record, and what the step enqueued, with one fenced
// write. It outlasts a store that is away, full, read-only or denies it for as
// long as ctx lives; a repeat writes the same record under the same ids.
func (q *Queue) SaveStep(ctx context.Context, p store.StepParams) (store.StepResult, error) {
	if q.together {
		r, err := q.records.do(ctx, record{step: &p})
		return r.step, err
	}
	return q.steps.do(ctx, p)
}

// ListSteps answers the records of a run in the order in which it reached them.
func (q *Queue) ListSteps(ctx context.Context, runID string) ([]job.Step, error) {
	return q.store.ListSteps(ctx, runID)
}

func stepSize(p *store.StepParams) int {
	n := len(p.Output)
	for i := range p.Enqueue {
		n += len(p.Enqueue[i].Input)
	}
	for i := range p.Publish {
		n += len(p.Publish[i].Payload)
	}
	return n
}

func settleSize(p *store.SettleParams) int {
	n := len(p.Output)
	if p.Step != nil {
		n += stepSize(p.Step)
	}
	if p.Invoke != nil {
		for i := range p.Invoke.Start {
			n += len(p.Invoke.Start[i].Run.Input)
		}
	}
	for i := range p.Enqueue {
		n += len(p.Enqueue[i].Input)
	}
	for i := range p.Log {
		n += p.Log[i].Size()
	}
	return n
}
