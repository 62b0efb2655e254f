package enginetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jobrunner/runner/abi"
)

// Handler is a job handler as a Go function. It returns its output, or an
// error: a *Fail for a failure of a certain kind, anything else for a
// retryable one.
type Handler func(t *Task) (any, error)

// Guest is an abi.Guest whose handlers are Go functions. It behaves as a module
// does: an error of a host call that is no answer unwinds the handler, and a
// context that ends stops it at its next host call or Task.Work.
type Guest struct {
	Name     string // its digest is made from it
	Handlers map[string]Handler

	running atomic.Int64
	started atomic.Int64
}

var _ abi.Guest = (*Guest)(nil)

// Digest is made from Name.
func (g *Guest) Digest() string {
	sum := sha256.Sum256([]byte("guest " + g.Name))
	return hex.EncodeToString(sum[:])
}

// Describe lists the handlers by name.
func (g *Guest) Describe() abi.Description {
	d := abi.Description{ABI: abi.Version, SDK: "enginetest"}
	for _, name := range slices.Sorted(maps.Keys(g.Handlers)) {
		d.Handlers = append(d.Handlers, abi.Handler{Name: name})
	}
	return d
}

// Running is how many attempts are inside a handler now.
func (g *Guest) Running() int { return int(g.running.Load()) }

// Started is how many attempts have ever begun.
func (g *Guest) Started() int { return int(g.started.Load()) }

// Fail is a failure with words of its own.
type Fail struct{ abi.Failure }

func (f *Fail) Error() string { return f.Message }

// Terminal is a failure that is not to be tried again.
func Terminal(code, message string) error {
	return &Fail{abi.Failure{Kind: abi.FailTerminal, Code: code, Message: message}}
}

// unwound carries the error that unwinds a handler.
type unwound struct{ err error }

// Run implements abi.Guest.
func (g *Guest) Run(ctx context.Context, a abi.Attempt, calls abi.Calls) (out abi.Outcome) {
	g.started.Add(1)
	g.running.Add(1)
	defer g.running.Add(-1)
	t := &Task{Context: ctx, Attempt: a, Calls: calls, Now: a.Now}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		u, ok := p.(unwound)
		if !ok {
			out = abi.Outcome{Kind: abi.Crashed, Failure: abi.Failure{Code: abi.CodeGuestTrap, Message: fmt.Sprint(p)}, Err: fmt.Errorf("%v", p)}
			return
		}
		var v *abi.Violation
		if errors.As(u.err, &v) {
			out = abi.Outcome{Kind: abi.Crashed, Err: u.err, Failure: abi.Failure{
				Kind: abi.FailTerminal, Code: abi.CodeABIViolation, Message: v.Error()}}
			return
		}
		out = abi.Outcome{Kind: abi.Stopped, Err: u.err}
	}()
	h, ok := g.Handlers[a.Handler]
	if !ok {
		return abi.Outcome{Kind: abi.Crashed, Failure: abi.Failure{Kind: abi.FailTerminal, Code: abi.CodeABIViolation, Message: "no handler " + a.Handler}}
	}
	v, err := h(t)
	if undoing := t.compensate(); undoing != nil {
		err = undoing
	}
	var f *Fail
	switch {
	case errors.As(err, &f):
		return abi.Outcome{Kind: abi.Failed, Failure: f.Failure}
	case err != nil:
		return abi.Outcome{Kind: abi.Failed, Failure: abi.Failure{Message: err.Error()}}
	}
	return abi.Outcome{Kind: abi.Done, Output: encode(v)}
}

func encode(v any) []byte {
	if raw, ok := v.(json.RawMessage); ok {
		return raw
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// Task is what a Handler sees of its attempt.
type Task struct {
	Context context.Context
	Attempt abi.Attempt
	Calls   abi.Calls
	Now     time.Time // the run's clock

	undo map[string]func() error // completed steps that can be undone
}

// check unwinds for an error that is no answer, and passes a Refusal on.
func (t *Task) check(err error) error {
	if err == nil {
		return nil
	}
	var r *abi.Refusal
	if errors.As(err, &r) {
		return err
	}
	panic(unwound{err})
}

// stop unwinds a handler whose context has ended, as a host does at a call.
func (t *Task) stop() {
	if t.Context.Err() != nil {
		panic(unwound{context.Cause(t.Context)})
	}
}

// Step runs body once for the run and answers its output ever after. An error
// of body is reported; if it is final, Step returns it as a *Fail.
func (t *Task) Step(name string, body func() (any, error)) (json.RawMessage, error) {
	return t.step(name, 0, body)
}

// Once is Step for a body that must not run twice.
func (t *Task) Once(name string, body func() (any, error)) (json.RawMessage, error) {
	return t.step(name, abi.StepOnce, body)
}

// Undoable is Step with what undoes it.
func (t *Task) Undoable(name string, body func() (any, error), undo func() error) (json.RawMessage, error) {
	out, err := t.step(name, abi.StepCompensated, body)
	if err == nil {
		if t.undo == nil {
			t.undo = map[string]func() error{}
		}
		t.undo[name] = undo
	}
	return out, err
}

// compensate undoes what the host names.
func (t *Task) compensate() error {
	for len(t.undo) > 0 {
		name, err := t.Calls.Compensate(t.Context)
		if err := t.check(err); err != nil || name == "" {
			return err
		}
		if err := t.undo[name](); err != nil {
			f := &Fail{abi.Failure{Message: err.Error()}}
			errors.As(err, &f)
			_, err := t.Calls.StepFail(t.Context, f.Failure)
			return t.check(err)
		}
		if _, err := t.Calls.StepEnd(t.Context, []byte("null")); t.check(err) != nil {
			return err
		}
	}
	return nil
}

func (t *Task) step(name string, flags abi.StepFlags, body func() (any, error)) (json.RawMessage, error) {
	t.stop()
	begun, err := t.Calls.StepBegin(t.Context, name, flags)
	if err := t.check(err); err != nil {
		return nil, err
	}
	switch begun.State {
	case abi.StepDone:
		t.Now = begun.At
		return begun.Record, nil
	case abi.StepFailed:
		t.Now = begun.At
		var f Fail
		if err := json.Unmarshal(begun.Record, &f.Failure); err != nil {
			panic(err)
		}
		return nil, &f
	}
	v, err := body()
	if err != nil {
		f := &Fail{abi.Failure{Message: err.Error()}}
		errors.As(err, &f)
		at, err := t.Calls.StepFail(t.Context, f.Failure)
		if err := t.check(err); err != nil {
			return nil, err
		}
		t.Now = at
		return nil, f
	}
	out := encode(v)
	at, err := t.Calls.StepEnd(t.Context, out)
	if err := t.check(err); err != nil {
		return nil, err
	}
	t.Now = at
	return out, nil
}

// Sleep suspends the run.
func (t *Task) Sleep(name string, d time.Duration) error {
	t.stop()
	at, err := t.Calls.Sleep(t.Context, name, d)
	if err := t.check(err); err != nil {
		return err
	}
	t.Now = at
	return nil
}

// Enqueue asks for runs.
func (t *Task) Enqueue(runs ...abi.EnqueueParams) ([]abi.EnqueueResult, error) {
	t.stop()
	results, err := t.Calls.Enqueue(t.Context, runs)
	return results, t.check(err)
}

// Work passes d as a handler does that computes: it is stopped by its context.
func (t *Task) Work(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context.Done():
	}
	t.stop()
}

// Deaf passes d whatever the context says.
func (t *Task) Deaf(d time.Duration) { time.Sleep(d) }
