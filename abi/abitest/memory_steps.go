package abitest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

func violation(fn, format string, args ...any) error {
	return &abi.Violation{Func: fn, Detail: fmt.Sprintf(format, args...)}
}

// lose ends the attempt with err: whatever the guest still asks is answered
// with a Violation, since a host must have unwound it.
func (m *Memory) lose(err error) error {
	m.lost = true
	return err
}

// enter is the first thing every call that counts does.
func (m *Memory) enter(ctx context.Context, fn string) error {
	if m.used == nil {
		return m.lose(violation(fn, "called before Memory.Attempt"))
	}
	if m.lost {
		return violation(fn, "called after the guest was unwound")
	}
	if ctx.Err() != nil {
		return m.lose(context.Cause(ctx))
	}
	return nil
}

// reach finds or makes the record that fn asks for by name, and checks that the
// run asks for its records in the order in which it first did.
func (m *Memory) reach(fn, name string) (*Record, error) {
	if m.used[name] {
		return nil, m.lose(violation(fn, "the name %q is used twice in one attempt", name))
	}
	m.used[name] = true
	if m.reached == len(m.records) || m.records[m.reached].Name == name && m.records[m.reached].Status == Retrying {
		if err := m.forward(); err != nil {
			return nil, err
		}
	}
	if m.reached < len(m.records) {
		r := m.records[m.reached]
		if r.Name != name || r.Kind != fn {
			return nil, m.lose(&abi.Error{
				Code:    CodeReplayDiverged,
				Message: fmt.Sprintf("the run asked for %s %q where it first asked for %s %q", fn, name, r.Kind, r.Name),
				Fix:     "make the handler take the same path every time; what differs belongs into a step",
			})
		}
		m.reached++
		return r, nil
	}
	if len(m.records) >= abi.MaxSteps {
		return nil, m.lose(&abi.Error{Code: CodeStepsExceeded, Message: fmt.Sprintf("more than %d records in one run", abi.MaxSteps)})
	}
	r := &Record{Name: name, Kind: fn, At: m.clock}
	m.records = append(m.records, r)
	m.reached++
	return r, nil
}

// StepBegin implements abi.Steps.
func (m *Memory) StepBegin(ctx context.Context, name string, flags abi.StepFlags) (abi.StepBegun, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if flags&abi.StepOnce != 0 {
		m.said("%s %q once", abi.FuncStepBegin, name)
	} else {
		m.said("%s %q", abi.FuncStepBegin, name)
	}
	if err := m.enter(ctx, abi.FuncStepBegin); err != nil {
		return abi.StepBegun{}, err
	}
	if m.open != nil {
		return abi.StepBegun{}, m.lose(violation(abi.FuncStepBegin, "step %q inside step %q", name, m.open.Name))
	}
	if flags&abi.StepCompensated != 0 && !m.cfg.Compensates {
		return abi.StepBegun{}, m.lose(&abi.Error{
			Code: CodeCompensationUndeclared, Message: "step " + name + " has a compensator, and the job does not compensate",
			Fix: "set compensates = true for the job",
		})
	}
	r, err := m.reach(abi.FuncStepBegin, name)
	if err != nil {
		return abi.StepBegun{}, err
	}
	m.undoable = flags&abi.StepCompensated != 0
	switch r.Status {
	case Completed:
		if m.undoable {
			m.undo = append(m.undo, r)
		}
		return abi.StepBegun{State: abi.StepDone, Record: r.Output, At: r.At}, nil
	case Failed:
		return abi.StepBegun{State: abi.StepFailed, Record: wire.AppendFailure(nil, r.Failure), At: r.At}, nil
	case Started:
		return abi.StepBegun{}, m.lose(&abi.Error{
			Code:    CodeStepOutcomeUnknown,
			Message: fmt.Sprintf("step %q may run once only, and an earlier attempt began it and did not report how it ended", name),
			Fix:     "find out by hand whether it took effect",
		})
	}
	if flags&abi.StepOnce != 0 {
		r.Status = Started
	}
	m.open = r
	return abi.StepBegun{State: abi.StepRun}, nil
}

// StepEnd implements abi.Steps.
func (m *Memory) StepEnd(ctx context.Context, output []byte) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		m.said("%s %s", abi.FuncStepEnd, output)
	} else {
		m.said("%s %q %s", abi.FuncStepEnd, m.open.Name, output)
	}
	if err := m.enter(ctx, abi.FuncStepEnd); err != nil {
		return time.Time{}, err
	}
	if m.undoing != nil {
		return m.undid()
	}
	if m.open == nil {
		return time.Time{}, m.lose(violation(abi.FuncStepEnd, "no step is open"))
	}
	if err := wire.JSON(abi.FuncStepEnd, "the output of step "+m.open.Name, output, abi.MaxOutput); err != nil {
		return time.Time{}, m.answer(err)
	}
	r := m.open
	r.Status, r.Output, r.At = Completed, bytes.Clone(output), m.clock
	m.commit(m.staged)
	m.open, m.staged = nil, nil
	if m.undoable {
		m.undo = append(m.undo, r)
	}
	return r.At, nil
}

// answer passes a Refusal on and loses the attempt to anything else.
func (m *Memory) answer(err error) error {
	if _, ok := err.(*abi.Refusal); ok {
		return err
	}
	return m.lose(err)
}

// StepFail implements abi.Steps.
func (m *Memory) StepFail(ctx context.Context, f abi.Failure) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		m.said("%s %d %s", abi.FuncStepFail, f.Kind, f.Message)
	} else {
		m.said("%s %q %d %s", abi.FuncStepFail, m.open.Name, f.Kind, f.Message)
	}
	if err := m.enter(ctx, abi.FuncStepFail); err != nil {
		return time.Time{}, err
	}
	if m.undoing != nil {
		m.staged = nil
		return time.Time{}, m.lose(&StepRetry{Step: m.undoing.Name, Failure: f})
	}
	if m.open == nil {
		return time.Time{}, m.lose(violation(abi.FuncStepFail, "no step is open"))
	}
	r := m.open
	m.open, m.staged = nil, nil
	r.Failure, r.At = f, m.clock
	if m.retries(f) {
		r.Status = Retrying
		return time.Time{}, m.lose(&StepRetry{Step: r.Name, Failure: f})
	}
	r.Status = Failed
	return r.At, nil
}

// retries reports whether f leaves another attempt.
func (m *Memory) retries(f abi.Failure) bool {
	switch f.Kind {
	case abi.FailTerminal:
		return false
	case abi.FailRateLimited:
		return true
	}
	return m.attempt-m.from < m.cfg.MaxAttempts
}
