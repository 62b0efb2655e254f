package worker

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/deploy"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/retry"
	"github.com/jobrunner/runner/engine/step"
	"github.com/jobrunner/runner/engine/store"
)

// attempt is one claim of a run until its settle has been answered.
type attempt struct {
	w           *Worker
	session     *session
	run         *job.Run
	ref         job.Ref
	claimed     time.Time
	ctx         context.Context
	cancel      context.CancelCauseFunc
	traceparent string // of its span, or of the run

	memory atomic.Pointer[step.Attempt] // once there is one
	serves atomic.Pointer[manifest.Job] // once memory knows the run's history
	told   *job.Progress                // that the store knows; the heartbeat's

	// Guarded by Worker.mu.
	settling bool // its verdict is given
	outside  bool // by someone who could not wait for its guest, which still has the slot
	doomed   bool // a heartbeat found it told to stop and still there
}

func newAttempt(w *Worker, s *session, r *job.Run, claimed time.Time) *attempt {
	a := &attempt{
		w: w, session: s, run: r, claimed: claimed,
		ref: job.Ref{RunID: r.ID, Worker: s.id, Claim: r.Claims},
	}
	// Not the session's context: the first cause to end an attempt must be its
	// own, and a thousand attempts are not a thousand children of one context.
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	return a
}

// hold makes a the session's, unless the worker takes no more.
func (w *Worker) hold(a *attempt) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != running || a.session.over {
		return false
	}
	a.session.held[a.ref] = a
	w.attempts++
	return true
}

// work executes the attempt to its end and hands its verdict over. It is called on
// the attempt's goroutine.
func (a *attempt) work() {
	began := time.Now()
	span := a.beginSpan()
	v := a.execute()
	a.endSpan(span, v)
	a.settle(v, time.Since(began))
	a.cancel(nil)
}

// execute runs the guest and judges what came of it. No panic leaves it.
func (a *attempt) execute() (v verdict) {
	var declared *manifest.Job
	var memory *step.Attempt
	defer func() {
		if p := recover(); p != nil {
			v = a.panicked(declared, p)
			if memory != nil && declared != nil {
				v = a.unwindFirst(judgement{job: declared, memory: memory, outcome: abi.Outcome{Kind: abi.Crashed}}, v)
			}
		}
	}()
	lease, err := a.w.cfg.Deploy.Resolve(a.ctx, a.run.Job, a.run.Module)
	if err != nil {
		return a.unserved(err)
	}
	defer lease.Release()
	declared = lease.Job
	memory = step.New(a.remember(lease))
	a.memory.Store(memory)
	if err := a.hydrate(memory); err != nil {
		return a.unread(err)
	}
	a.serves.Store(declared)
	if err := a.admissible(lease.Job); err != nil {
		return a.judge(judgement{outcome: abi.Outcome{Kind: abi.Crashed, Failure: failureOf(err)}, job: lease.Job, memory: memory})
	}

	var deadline time.Time
	if limit := lease.Job.Timeout; limit > 0 {
		// Through the attempt's own cancel rather than a context with a deadline:
		// whatever ends the attempt first is its one cause.
		deadline = time.Now().Add(limit)
		defer time.AfterFunc(limit, func() { a.cancel(overdue(limit)) }).Stop()
	}
	out := lease.Guest.Run(a.ctx, a.describe(lease, deadline), memory)
	return a.judge(judgement{
		cause: context.Cause(a.ctx), outcome: out, job: lease.Job, memory: memory, module: lease.Digest,
	})
}

func overdue(limit time.Duration) error {
	return &abi.Error{
		Code:    job.CodeTimeout,
		Message: fmt.Sprintf("the attempt took longer than %v", limit),
		Fix:     "raise timeout of the job, or split the work into steps: finished ones are not run again",
	}
}

// admissible checks the row once more against the manifest as it is now: both
// may have changed since the enqueue.
func (a *attempt) admissible(j *manifest.Job) error {
	if err := queue.CheckInput(j, a.run.Input); err != nil {
		return err
	}
	return queue.CheckTenant(j, a.run)
}

// remember is what the attempt's durable memory is made from.
func (a *attempt) remember(l deploy.Lease) step.Params {
	return step.Params{
		Queue: a.w.cfg.Queue, Run: a.run, Ref: a.ref, Module: l.Digest,
		Compensates: l.Job.Compensates,
		Policy: func(name string) (time.Duration, *job.RetryPolicy) {
			p := l.Job.Step(name)
			return p.Timeout, p.Retry
		},
		EventKeep: job.DefaultEventKeep, Claimed: a.claimed, Cancel: a.cancel,
		Final: func(f abi.Failure) bool {
			return a.decide(l.Job, f).Stop != retry.NotStopped
		},
		Logger: a.w.cfg.Logger, Metrics: a.w.cfg.Metrics, Tracer: a.w.cfg.Tracer, Traceparent: a.traceparent,
	}
}

// describe is what the guest starts from.
func (a *attempt) describe(l deploy.Lease, deadline time.Time) abi.Attempt {
	r := a.run
	return abi.Attempt{
		Handler: l.Job.Handler,
		Input:   r.Input,
		Meta: abi.Meta{
			RunID: r.ID, Job: r.Job, Queue: r.Queue, Tenant: r.Tenant,
			Attempt: r.Attempt, MaxAttempts: r.MaxAttempts,
			EnqueuedAt: r.CreatedAt, Deadline: deadline.Round(0).UTC(),
			Traceparent: a.traceparent, Module: l.Digest,
		},
		Now:  r.StartedAt,
		Seed: seed(r.ID),
	}
}

// seed is the same for every attempt of a run, on every machine.
func seed(runID string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(runID))
	return h.Sum64()
}

// unserved parks a run that this process cannot serve, which another may, or
// this one after the next deploy.
func (a *attempt) unserved(err error) verdict {
	if a.ctx.Err() != nil {
		return a.judge(judgement{cause: context.Cause(a.ctx), outcome: abi.Outcome{Kind: abi.Stopped, Err: err}})
	}
	if a.w.once("unserved " + a.run.Job + " " + a.run.Module) {
		a.w.cfg.Logger.Warn("jobs.worker.parked", slog.String("job", a.run.Job), slog.String("run", a.run.ID), slog.Any("error", err))
	}
	failure := step.Bounded(failureOf(err))
	return verdict{params: store.SettleParams{
		Ref: a.ref, Outcome: job.Shed, To: job.Delayed, Delay: parkDelay, Error: &failure,
	}}
}

// hydrate reads the run's history. A read that hangs is given up: the worker
// renews its lease meanwhile, so nothing else would ever end the attempt, whose
// own time has not begun.
func (a *attempt) hydrate(memory *step.Attempt) error {
	if !memory.Hydrates() {
		return nil
	}
	ctx, cancel := context.WithTimeout(a.ctx, claimTimeout)
	defer cancel()
	return memory.Hydrate(ctx)
}

// unread hands back a run whose history the store did not give.
func (a *attempt) unread(err error) verdict {
	if a.ctx.Err() != nil {
		return a.judge(judgement{cause: context.Cause(a.ctx), outcome: abi.Outcome{Kind: abi.Stopped, Err: err}})
	}
	a.w.cfg.Logger.Warn("jobs.worker.history-unread", slog.String("run", a.run.ID), slog.Any("error", err))
	delay := shedDelay
	if abi.CodeOf(err) == job.CodeRowStatusUnknown {
		delay = parkDelay // another build wrote it; it will be there for a while
	}
	failure := step.Bounded(failureOf(err))
	return verdict{params: store.SettleParams{
		Ref: a.ref, Outcome: job.Shed, To: job.Delayed, Delay: delay, Error: &failure,
	}}
}

// panicked is the verdict on a bug of this process. The run may be its trigger,
// so the attempt counts.
func (a *attempt) panicked(j *manifest.Job, p any) verdict {
	stack := debug.Stack()
	a.w.cfg.Logger.Error("jobs.attempt.panicked", slog.String("run", a.run.ID), slog.String("job", a.run.Job),
		slog.Any("panic", p), slog.String("stack", string(stack)))
	return a.failed(judgement{job: j}, abi.Failure{
		Code:    abi.CodeHostFailure,
		Message: fmt.Sprintf("the runner panicked: %v", p),
		Fix:     "report it: this is a bug of the runner, not of the handler",
		Stack:   string(stack),
	})
}
