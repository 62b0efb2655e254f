package host

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/host/call"
	"github.com/jobrunner/runner/host/instance"
)

// CodeHandlerUnknown: an attempt names a handler that its module does not have.
const CodeHandlerUnknown = "X_HANDLER_UNKNOWN"

// Guest is a loaded module. It implements abi.Guest and io.Closer.
type Guest struct {
	*loaded
	h       *Host
	digest  string
	release func()
}

// Digest implements abi.Guest.
func (g *Guest) Digest() string { return g.digest }

// Describe implements abi.Guest.
func (g *Guest) Describe() abi.Description { return g.desc }

// Close gives the module up: attempts in flight finish, and what nobody else
// loaded is freed after the last of them. It never waits.
func (g *Guest) Close() error {
	g.release()
	return nil
}

// Run implements abi.Guest.
func (g *Guest) Run(ctx context.Context, a abi.Attempt, calls abi.Calls) (out abi.Outcome) {
	handler, ok := g.handlers[a.Handler]
	if !ok {
		err := &abi.Error{Code: CodeHandlerUnknown, Message: fmt.Sprintf("the module has no handler %q", a.Handler),
			Fix: "name one of its handlers, or deploy the module that has it"}
		return abi.Outcome{Kind: abi.Crashed, Err: err, Failure: abi.Failure{Kind: abi.FailTerminal, Code: err.Code, Message: err.Message, Fix: err.Fix}}
	}
	if !g.h.begin() {
		return g.h.broken(a, ErrClosed)
	}
	r := run{g: g}
	defer r.leave(&a, &out)
	r.attempt(ctx, uint64(handler), &a, calls, &out)
	return out
}

// run is what an attempt holds.
type run struct {
	g     *Guest
	state *call.State
	in    *instance.Instance
	after call.Aftermath
	over  bool // it came to an outcome
}

func (r *run) attempt(ctx context.Context, handler uint64, a *abi.Attempt, calls abi.Calls, out *abi.Outcome) {
	g := r.g
	var err error
	r.state, err = call.Begin(ctx, call.BeginParams{
		Attempt: a, Calls: calls, Capabilities: g.caps, Slots: g.h.slots, Quantum: g.h.cfg.Quantum,
	})
	if err == nil {
		r.in, err = g.template.Acquire(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		*out = abi.Outcome{Kind: abi.Stopped, Err: context.Cause(ctx)}
	case err != nil:
		*out = g.h.broken(*a, err)
	default:
		r.state.Enter()
		result, err := r.in.Call(r.state, instance.Run, handler, r.state.Fuel())
		*out, r.after = r.state.End(ended(r.in, instance.Run, result, err))
		if out.Kind == abi.Crashed && out.Failure.Code == abi.CodeHostFailure {
			g.h.report(*a, out.Err)
		}
	}
	r.over = true
}

// leave gives everything back, also when the host itself panicked on the way or
// the goroutine is being ended.
func (r *run) leave(a *abi.Attempt, out *abi.Outcome) {
	if !r.over {
		r.after = call.Discard
		err, ok := recover().(error)
		if !ok {
			err = errors.New("the goroutine of an attempt ended")
		}
		*out = r.g.h.broken(*a, fmt.Errorf("%w\n%s", err, debug.Stack()))
	}
	if r.in != nil {
		if r.after == call.DropStack {
			r.in.DropFuncs()
		}
		r.g.template.Release(r.in, r.after == call.Discard)
	}
	if r.state != nil {
		r.state.Close()
	}
	r.g.h.end()
}

// broken is the outcome of an attempt that the host itself failed.
func (h *Host) broken(a abi.Attempt, err error) abi.Outcome {
	h.report(a, err)
	return abi.Outcome{Kind: abi.Crashed, Err: err, Failure: abi.Failure{
		Code: abi.CodeHostFailure, Message: "the host failed while it served the guest", Fix: "the operator finds the cause in the runner's log",
	}}
}

// report tells the operator of what no retry explains.
func (h *Host) report(a abi.Attempt, err error) {
	h.cfg.Logger.Error("host: an attempt failed because of the host", logRun, a.Meta.RunID, logJob, a.Meta.Job, logModule, a.Meta.Module, logError, err)
}
