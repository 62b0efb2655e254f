package guest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// Codes of a step whose output cannot be kept.
const (
	CodeStepOutput   = "X_STEP_OUTPUT_INVALID"
	CodeInputInvalid = "X_JOB_INPUT_INVALID"
)

// StepOption changes what a Step promises.
type StepOption func(*stepOptions)

type stepOptions struct {
	flags abi.StepFlags
	undo  compensator // nil without one
}

// Once says that the body must never run twice. Its start is recorded before it
// runs; if an attempt finds it begun but not ended, nobody can say whether it
// took effect, and the run stops with X_STEP_OUTCOME_UNKNOWN for a person to
// look at.
func Once() StepOption { return func(o *stepOptions) { o.flags |= abi.StepOnce } }

// Step runs body once and remembers what it returned: it comes back only when
// that is durable, and every later attempt of the run gets the recorded value
// without running body. The value crosses as JSON, and even the first time what
// Step returns is what was read back from it, so that an attempt sees what its
// replays will see.
//
// When body returns an error (or panics), the run is tried again while the
// policy allows, and body with it; a failure that is final is recorded and
// returned as a *StepError, in this attempt and in all later ones.
//
// The name is the step's identity. Used again in one attempt, as in a loop, it
// becomes "name#2", "name#3" and so on by the order of the calls, which must be
// the same every time; where the order can change, put an id into the name. A
// name that is empty, longer than 255 bytes or has control characters ends the
// run. Inside body there are no other steps, sleeps or waits.
func Step[T any](c *Ctx, name string, body func() (T, error), opts ...StepOption) (T, error) {
	var v T
	err := c.step(name, opts, &v, func() (err error) {
		v, err = body()
		return err
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return v, nil
}

// Do is Step for a body that returns nothing.
func Do(c *Ctx, name string, body func() error, opts ...StepOption) error {
	return c.step(name, opts, nil, body)
}

// step is Step without its type: into points to where body leaves its value, or
// is nil.
func (c *Ctx) step(name string, opts []StepOption, into any, body func() error) error {
	var o stepOptions
	for _, set := range opts {
		set(&o)
	}
	name = c.unique(name)
	switch state := c.h.StepBegin(name, uint32(o.flags)); abi.StepState(state) {
	case abi.StepRun:
	case abi.StepDone:
		if into == nil && o.undo == nil {
			return nil
		}
		record := c.result(c.h.ResultLen())
		c.undoable(name, o.undo, record)
		if into == nil {
			return nil
		}
		if err := json.Unmarshal(record, into); err != nil {
			return Terminal(Coded(CodeStepOutput, fmt.Errorf("the recorded output of step %q does not fit its type any more: %w", name, err)))
		}
		return nil
	case abi.StepFailed:
		f, err := wire.ReadFailure(c.result(c.h.ResultLen()))
		if err != nil {
			return Terminal(fmt.Errorf("the recorded failure of step %q cannot be read: %w", name, err))
		}
		return stepError(name, f)
	default:
		return c.refused(abi.FuncStepBegin, state)
	}

	err := guarded(body)
	if err == nil {
		var output []byte
		if output, err = recordable(into); err == nil {
			n := c.h.StepEnd(output)
			if n >= 0 {
				c.undoable(name, o.undo, output)
				return nil
			}
			err = c.refused(abi.FuncStepEnd, n)
		}
	}
	f := failureOf(err)
	if n := c.h.StepFail(uint32(f.Kind), wire.AppendFailure(nil, f)); n < 0 {
		return c.refused(abi.FuncStepFail, n)
	}
	return stepError(name, f)
}

func stepError(name string, f abi.Failure) error {
	return &StepError{Step: name, Code: Code(f.Code), Message: f.Message, Fix: f.Fix}
}

// guarded is f with a panic as its error. A *HostError keeps being one: it is
// the panic of methods that have no error to return.
func guarded(f func() error) (err error) {
	defer func() {
		switch x := recover().(type) {
		case nil:
		case *HostError:
			err = x
		default:
			err = &panicked{fmt.Sprint(x), string(debug.Stack())}
		}
	}()
	return f()
}

// recordable is what into points to as JSON, and sets it to what a replay will
// read from that.
func recordable(into any) ([]byte, error) {
	if into == nil {
		return []byte("null"), nil
	}
	b, err := json.Marshal(into)
	if err != nil {
		return nil, Terminal(Coded(CodeStepOutput, fmt.Errorf("the output cannot be written as JSON: %w", err)))
	}
	switch into.(type) {
	case *bool, *int, *int8, *int16, *int32, *int64, *uint, *uint8, *uint16, *uint32, *uint64, *float64:
		return b, nil // exact
	}
	reflect.ValueOf(into).Elem().SetZero()
	if err := json.Unmarshal(b, into); err != nil {
		return nil, Terminal(Coded(CodeStepOutput, fmt.Errorf("the output cannot be read back from its JSON: %w", err)))
	}
	return b, nil
}
