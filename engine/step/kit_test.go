package step_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/step"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/sqlite"
)

func TestTheEngineKeepsTheContractOfItsGuests(t *testing.T) {
	abitest.TestCalls(t, func(tb testing.TB, p abitest.RunParams) abitest.Run { return newKitRun(tb, p) })
}

// kitRun is one run in a database of its own, whose clock only the kit moves.
type kitRun struct {
	db      store.Store
	queue   *queue.Queue
	passed  atomic.Int64 // added to the system's clock
	runID   string
	workers int

	run    job.Run
	ref    job.Ref
	memory *step.Attempt
	end    func(abi.EnqueueParams) ([]byte, *abi.Failure) // of children
}

func newKitRun(tb testing.TB, p abitest.RunParams) *kitRun {
	tb.Helper()
	k := &kitRun{}
	db, err := sqlite.Open(context.Background(), sqlite.Config{
		Path: sqlite.Memory, Create: true,
		Clock: func() time.Time { return time.Now().Add(time.Duration(k.passed.Load())) },
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	g := &enginetest.Guest{Name: "kit", Handlers: map[string]enginetest.Handler{"parent": nil, "child": nil}}
	m := enginetest.Serve(g, func(m *manifest.Manifest) { m.Jobs["child"].Queue = "elsewhere" }).Manifest
	k.db, k.queue = db, queue.New(queue.Config{Store: db, Manifest: func() *manifest.Manifest { return m }})
	res, err := k.queue.Enqueue(context.Background(), queue.Request{Job: "parent", MaxAttempts: p.MaxAttempts})
	if err != nil {
		tb.Fatal(err)
	}
	k.runID = res.ID
	return k
}

func (k *kitRun) Begin(tb testing.TB) abi.Calls {
	tb.Helper()
	ctx := context.Background()
	k.workers++ // a new one each time: time that the kit lets pass ends leases
	worker := fmt.Sprint("w", k.workers)
	if err := k.db.Register(ctx, store.RegisterParams{ID: worker, Lease: time.Minute}); err != nil {
		tb.Fatal(err)
	}
	res, err := k.db.Claim(ctx, store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: "default", Limit: 1}}})
	if err != nil || len(res.Runs) != 1 {
		tb.Fatalf("claimed %d runs, %v", len(res.Runs), err)
	}
	k.run = res.Runs[0]
	k.ref = job.Ref{RunID: k.run.ID, Worker: worker, Claim: k.run.Claims}
	k.memory = step.New(step.Params{
		Queue: k.queue, Run: &k.run, Ref: k.ref, Module: "digest", Claimed: time.Now(),
		EventKeep: time.Hour, Cancel: func(error) {}, Logger: slog.New(slog.DiscardHandler),
		Final: func(f abi.Failure) bool {
			return f.Kind == abi.FailTerminal || f.Kind != abi.FailRateLimited && k.run.Attempt >= k.run.MaxAttempts
		},
	})
	if err := k.memory.Hydrate(ctx); err != nil {
		tb.Fatal(err)
	}
	return k.memory
}

func (k *kitRun) End(tb testing.TB, out abi.Outcome) {
	tb.Helper()
	p := store.SettleParams{Ref: k.ref, Outcome: job.Retried, To: job.Ready, Module: "digest"}
	var suspend *step.Suspend
	var again *step.Retry
	switch {
	case errors.As(out.Err, &suspend):
		p.Outcome, p.To, p.Step, p.Invoke = job.Slept, job.Suspended, suspend.Record, suspend.Invoke
	case errors.As(out.Err, &again):
		p.Step = again.Record
		if again.Failure.Kind == abi.FailRateLimited {
			p.Outcome = job.Deferred
		}
	default:
		p.Step = k.memory.LeftOpen(out.Failure)
	}
	res, err := k.queue.Settle(context.Background(), p)
	if err != nil || !res.Landed {
		tb.Fatalf("the settle answered %+v, %v", res, err)
	}
	if p.Invoke != nil {
		k.endChildren(tb)
	}
}

// endChildren runs the children that are due.
func (k *kitRun) endChildren(tb testing.TB) {
	tb.Helper()
	ctx := context.Background()
	k.workers++
	worker := fmt.Sprint("w", k.workers)
	if err := k.db.Register(ctx, store.RegisterParams{ID: worker, Lease: time.Minute}); err != nil {
		tb.Fatal(err)
	}
	res, err := k.db.Claim(ctx, store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: "elsewhere", Limit: 1000}}})
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range res.Runs {
		p := store.SettleParams{Ref: job.Ref{RunID: r.ID, Worker: worker, Claim: r.Claims}, Outcome: job.Completed, To: job.Done, Parent: r.Parent}
		output, f := k.end(abi.EnqueueParams{Job: r.Job, Input: r.Input, Key: r.Key})
		if p.Output = output; f != nil {
			p.Outcome, p.To, p.Error = job.DeadLettered, job.Dead, &job.Failure{Code: f.Code, Message: f.Message, Fix: f.Fix}
		}
		if res, err := k.queue.Settle(ctx, p); err != nil || !res.Landed {
			tb.Fatalf("the child's settle answered %+v, %v", res, err)
		}
	}
}

func (k *kitRun) Publish(tb testing.TB, e abi.PublishParams) {
	tb.Helper()
	if _, err := k.queue.Publish(context.Background(), queue.Event{Topic: e.Topic, Key: e.Key, Payload: e.Payload}); err != nil {
		tb.Fatal(err)
	}
}

func (k *kitRun) Children(end func(abi.EnqueueParams) ([]byte, *abi.Failure)) { k.end = end }

func (k *kitRun) Pass(d time.Duration) { k.passed.Add(int64(d)) }

func (k *kitRun) Enqueued(tb testing.TB) []abi.EnqueueParams {
	tb.Helper()
	runs, err := k.db.List(context.Background(), store.ListParams{Parent: k.runID})
	if err != nil {
		tb.Fatal(err)
	}
	slices.Reverse(runs) // newest first
	out := make([]abi.EnqueueParams, len(runs))
	for i, r := range runs {
		full, err := k.db.Get(context.Background(), r.ID)
		if err != nil {
			tb.Fatal(err)
		}
		out[i] = abi.EnqueueParams{Job: full.Job, Input: full.Input, Key: full.Key}
	}
	return out
}
