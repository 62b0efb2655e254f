package guest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// compensator undoes a step, given its recorded output.
type compensator func(record []byte) error

// pending is a completed step that can be undone.
type pending struct {
	name   string
	record []byte
	undo   compensator
}

// Compensate says how a completed step is undone, given what it returned, which
// must be a T. Of a job with compensates = true whose run fails for good, after
// its retries, the completed steps that have a compensator are undone, the last
// first, each as a step of its own: its outcome is recorded, a failure is tried
// again as the job's retry policy says, and an interruption goes on where it
// was. The run then ends with the failure that it had. If a step cannot be
// undone, it ends with X_JOB_COMPENSATION_FAILED, for a person.
//
// To be undone, the handler is run once more up to where its records end, and
// not beyond. A compensator must be safe to run twice: a crash between its
// effect and its record repeats it. It may not sleep or wait.
func Compensate[T any](undo func(T) error) StepOption {
	return func(o *stepOptions) {
		o.flags |= abi.StepCompensated
		o.undo = func(record []byte) error {
			var v T
			if err := json.Unmarshal(record, &v); err != nil {
				return Terminal(Coded(CodeStepOutput, fmt.Errorf("the recorded output does not fit the compensator: %w", err)))
			}
			return undo(v)
		}
	}
}

// Undo is Compensate for a step whose output the compensator does not need.
func Undo(undo func() error) StepOption {
	return func(o *stepOptions) {
		o.flags |= abi.StepCompensated
		o.undo = func([]byte) error { return undo() }
	}
}

// undoable keeps how a completed step is undone. The record is the host's.
func (c *Ctx) undoable(name string, undo compensator, record []byte) {
	if undo != nil {
		c.undo = append(c.undo, pending{name, bytes.Clone(record), undo})
	}
}

// compensate undoes what the host names, until it names nothing: at once, if
// the run is not undone.
func (c *Ctx) compensate() error {
	for {
		n := c.h.Compensate()
		if n < 0 {
			return c.refused(abi.FuncCompensate, n)
		}
		if n == 0 {
			return nil
		}
		if err := c.undoStep(string(c.result(n))); err != nil {
			return err
		}
	}
}

func (c *Ctx) undoStep(name string) error {
	err := Terminal(fmt.Errorf("the handler has no compensator for step %s", strconv.Quote(name)))
	for _, p := range c.undo {
		if p.name == name {
			err = guarded(func() error { return p.undo(p.record) })
			break
		}
	}
	if err == nil {
		if n := c.h.StepEnd([]byte("null")); n < 0 {
			return c.refused(abi.FuncStepEnd, n)
		}
		return nil
	}
	f := failureOf(err)
	if n := c.h.StepFail(uint32(f.Kind), wire.AppendFailure(nil, f)); n < 0 {
		return c.refused(abi.FuncStepFail, n)
	}
	return err
}
