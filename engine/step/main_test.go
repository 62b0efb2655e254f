package step_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/internal/leaktest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/step"
	"github.com/jobrunner/runner/engine/store"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// rig is one run in a database in memory, claimed again and again by a worker
// that only exists as a row.
type rig struct {
	*testing.T
	db    *enginetest.Store
	queue *queue.Queue
	log   *slog.Logger
	runID string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, db: &enginetest.Store{Store: enginetest.Memory(t)}, log: slog.New(slog.DiscardHandler)}
	g := &enginetest.Guest{Name: "s", Handlers: map[string]enginetest.Handler{"parent": nil, "child": nil, "keyed": nil}}
	m := enginetest.Serve(g, func(m *manifest.Manifest) {
		m.Jobs["keyed"].Key = enginetest.Key("k:{id}")
		m.Jobs["child"].Queue = "elsewhere"
		m.Jobs["keyed"].Queue = "elsewhere"
	}).Manifest
	r.queue = queue.New(queue.Config{Store: r.db, Manifest: func() *manifest.Manifest { return m }})
	res, err := r.queue.Enqueue(t.Context(), queue.Request{Job: "parent"})
	r.must(err)
	r.runID = res.ID
	r.register("w1")
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) register(worker string) {
	r.Helper()
	r.must(r.db.Register(r.Context(), store.RegisterParams{ID: worker, Lease: 30 * time.Second}))
}

// attempt is a claimed run and its memory.
type attempt struct {
	*step.Attempt
	*rig
	run    job.Run
	ref    job.Ref
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// begin claims the run and hydrates its memory.
func (r *rig) begin(worker string) *attempt {
	r.Helper()
	res, err := r.db.Claim(r.Context(), store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: "default", Limit: 1}}})
	r.must(err)
	if len(res.Runs) != 1 {
		r.Fatalf("%d runs claimed (worker gone: %v)", len(res.Runs), res.WorkerGone)
	}
	a := &attempt{rig: r, run: res.Runs[0]}
	a.ref = job.Ref{RunID: a.run.ID, Worker: worker, Claim: a.run.Claims}
	a.ctx, a.cancel = context.WithCancelCause(r.Context())
	r.Cleanup(func() { a.cancel(nil) })
	a.Attempt = step.New(step.Params{
		Queue: r.queue, Run: &a.run, Ref: a.ref, Module: "digest", Policy: func(string) (time.Duration, *job.RetryPolicy) { return time.Minute, nil },
		Claimed: time.Now(), Cancel: a.cancel, Logger: r.log,
		Final: func(f abi.Failure) bool {
			return f.Kind == abi.FailTerminal || f.Kind != abi.FailRateLimited && a.run.Attempt >= a.run.MaxAttempts
		},
	})
	r.must(a.Hydrate(a.ctx))
	return a
}

// settle ends the attempt; rec is written with it.
func (a *attempt) settle(o job.Outcome, to job.State, rec *store.StepParams) {
	a.rig.Helper()
	res, err := a.queue.Settle(a.Context(), store.SettleParams{Ref: a.ref, Outcome: o, To: to, Step: rec, Module: "digest"})
	a.must(err)
	if !res.Landed {
		a.Fatal("the settle did not land")
	}
}

// again ends the attempt as one to be tried again at once.
func (a *attempt) again(rec *store.StepParams) *attempt {
	a.rig.Helper()
	a.settle(job.Retried, job.Ready, rec)
	return a.begin(a.ref.Worker)
}

// do runs a whole step whose body answers output.
func (a *attempt) do(name, output string) time.Time {
	a.rig.Helper()
	begun, err := a.StepBegin(a.ctx, name, 0)
	a.must(err)
	if begun.State != abi.StepRun {
		a.Fatalf("step %q is %d, want to run", name, begun.State)
	}
	at, err := a.StepEnd(a.ctx, []byte(output))
	a.must(err)
	return at
}

// replay expects the record of a step.
func (a *attempt) replay(name, output string) time.Time {
	a.rig.Helper()
	begun, err := a.StepBegin(a.ctx, name, 0)
	a.must(err)
	if begun.State != abi.StepDone || string(begun.Record) != output {
		a.Fatalf("step %q answers %d %s, want its record %s", name, begun.State, begun.Record, output)
	}
	return begun.At
}

func (r *rig) steps() []job.Step {
	r.Helper()
	s, err := r.db.Store.ListSteps(r.Context(), r.runID)
	r.must(err)
	return s
}

func (r *rig) code(err error, want string) {
	r.Helper()
	if got := abi.CodeOf(err); got != want {
		r.Errorf("error is %v, want code %s", err, want)
	}
}

func (r *rig) refusal(err error, want abi.Code) {
	r.Helper()
	var f *abi.Refusal
	if !errors.As(err, &f) || f.Code != want {
		r.Errorf("error is %v, want a refusal with code %d", err, want)
	}
}

func (r *rig) violation(err error) {
	r.Helper()
	var v *abi.Violation
	if !errors.As(err, &v) {
		r.Errorf("error is %v, want a violation", err)
	}
}

func draining() error { return &abi.Error{Code: job.CodeDraining, Message: "draining"} }
