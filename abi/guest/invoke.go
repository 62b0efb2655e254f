package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// Abandon lets an invoked run go on when the run that waits for it ends before
// it, by a cancel or a failure for good; it is cancelled otherwise.
func Abandon() EnqueueOption { return func(p *abi.EnqueueParams) { p.Abandon = true } }

// Timeout has an invoked run waited for no longer than d from its start. It is
// cancelled then, or goes on with Abandon, and is an error: ErrTimeout, and
// ErrFailed as that of any child that did not end well. The job's own timeout is
// something else: it is that of one attempt.
//
// Below a millisecond it is one millisecond.
func Timeout(d time.Duration) EnqueueOption {
	return func(p *abi.EnqueueParams) { p.TimeoutMS = max(d.Milliseconds(), 1) }
}

// childTimeout is the code of a child that was not waited for any longer.
const childTimeout Code = "X_CHILD_TIMEOUT"

// stepsExceeded is the code of a run that would have more records than it may.
const stepsExceeded Code = "X_STEPS_EXCEEDED"

// Invoke makes a run of another job, waits for its end as Sleep sleeps, and
// returns its output; every later attempt gets the same. It cannot be called in
// a step.
//
// A child that did not end well is ErrFailed, with the child's code: the handler
// may go on otherwise, or return the error, which fails it for good. A child
// whose key a live run holds already is such a failure, with the code
// X_JOB_DUPLICATE: the run that holds it is someone else's.
func Invoke[T any](c *Ctx, job string, input any, opts ...EnqueueOption) (T, error) {
	outcomes, err := InvokeAll[T](c, 1, Run{job, input, opts})
	if err != nil {
		var zero T
		return zero, err
	}
	return outcomes[0].Value, outcomes[0].Err
}

// Outcome is how a child of InvokeAll ended.
type Outcome[T any] struct {
	Value T
	Err   error // as Invoke returns it
}

// InvokeAll makes up to 1,000 child runs and waits until all of them have ended,
// at most limit being live at a time; 0 is as many as the host allows (256). The
// outcomes are in the order of runs. The error says that the children could not
// be made, as of Enqueue; that one failed is in its outcome. Each child is one of
// the 10,000 records that a run may have.
func InvokeAll[T any](c *Ctx, limit int, runs ...Run) ([]Outcome[T], error) {
	if len(runs) == 0 {
		return nil, nil
	}
	params := make([]abi.EnqueueParams, len(runs))
	for i, r := range runs {
		var err error
		if params[i], err = r.params(); err != nil {
			return nil, err
		}
	}
	n := c.h.Invoke(wire.AppendEnqueue(nil, params...), int32(min(max(limit, 0), abi.MaxInvoke)))
	if n < 0 {
		return nil, c.refused(abi.FuncInvoke, n)
	}
	if int(n) != len(runs) {
		return nil, Terminal(fmt.Errorf("the host's answer to invoke cannot be read: %d results for %d runs", n, len(runs)))
	}
	outcomes := make([]Outcome[T], n)
	for i := range outcomes {
		o := &outcomes[i]
		if m := c.h.InvokeResult(int32(i)); m < 0 {
			o.Err = c.refused(abi.FuncInvoke, m)
		} else if err := json.Unmarshal(c.result(m), &o.Value); err != nil {
			o.Err = Terminal(fmt.Errorf("the output of job %q has another shape: %w", runs[i].Job, err))
		}
	}
	return outcomes, nil
}

// Map invokes a job once for each input, at most limit at a time, and returns the
// outputs in the order of the inputs. It waits for all of them also when some
// fail; the error then joins theirs, each with the index of its input.
//
// Each child is one of the 10,000 records that a run may have, beside its steps.
// More inputs than that are refused before the first child is made, with the code
// X_STEPS_EXCEEDED.
func Map[Out, In any](c *Ctx, job string, limit int, inputs []In, opts ...EnqueueOption) ([]Out, error) {
	if len(inputs) > abi.MaxSteps {
		return nil, Terminal(&HostError{
			Func: abi.FuncInvoke, Answer: abi.CodeLimit, Code: stepsExceeded,
			Message: fmt.Sprintf("%d runs of job %q; a run has at most %d steps, and each of its children is one", len(inputs), job, abi.MaxSteps),
			Fix:     "let children share the inputs and invoke children of their own, or enqueue what nobody waits for",
		})
	}
	outputs := make([]Out, len(inputs))
	var failed []error
	for start := 0; start < len(inputs); start += abi.MaxEnqueue {
		some := inputs[start:min(start+abi.MaxEnqueue, len(inputs))]
		runs := make([]Run, len(some))
		for i, in := range some {
			runs[i] = Run{job, in, opts}
		}
		outcomes, err := InvokeAll[Out](c, limit, runs...)
		if err != nil {
			return nil, err
		}
		for i, o := range outcomes {
			outputs[start+i] = o.Value
			if o.Err != nil {
				failed = append(failed, fmt.Errorf("input %d: %w", start+i, o.Err))
			}
		}
	}
	return outputs, errors.Join(failed...)
}
