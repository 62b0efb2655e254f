package guesttest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/guest"
)

// Options are what surrounds a run. The zero value is usable: three attempts,
// no tenant, every job known, no HTTP and no secrets.
type Options struct {
	MaxAttempts int       // 3 if 0
	Start       time.Time // 2030-01-01 00:00 UTC if zero
	Tenant      string
	Queue       string // "default" if empty
	// Jobs are those that the handler may enqueue and invoke; any if nil.
	Jobs []string
	// Events are published by others while the handler runs or waits.
	Events []abitest.Event
	// Invoke answers for the children that the handler invokes; null if nil.
	Invoke func(job string, input json.RawMessage) (output any, err *abi.Failure)
	// HTTP answers the handler's requests; denied if nil.
	HTTP func(guest.Request) (guest.Response, error)
	// Secrets by name; others are denied.
	Secrets map[string]string
	// Unsupported are optional functions that this host shall not have.
	Unsupported abi.Features
	// Compensates says that the job does (compensates = true): completed steps of a
	// run that fails for good are undone.
	Compensates bool
	// NoReplayCheck leaves out the replay after a run that is done.
	NoReplayCheck bool
}

// Result is a run that has come to its end.
type Result struct {
	// Output is what the handler returned, if Err is nil.
	Output json.RawMessage
	// Err is why the run failed for good: a *abi.Error with the failure's code,
	// message and fix.
	Err error
	// Steps are the run's steps in order, those of Enqueue and Publish between
	// steps left out.
	Steps []Step
	// Undone are the steps that were undone, in that order. Err is then still what
	// the run failed of, unless a compensator failed for good.
	Undone []string
	// Sleeps are the sleeps and waits in order.
	Sleeps    []Sleep
	Enqueued  []abi.EnqueueParams
	Published []Event
	Logs      []abitest.Line
	// Attempts is the number of the last attempt; Runs how often the handler was
	// called, which waiting raises too.
	Attempts int
	Runs     int
	// Elapsed is the virtual time from the first claim to the end.
	Elapsed time.Duration
	// Transcript is every call of every attempt; see abitest.Memory.Transcript.
	Transcript []string
}

// Step is a step and how it ended.
type Step struct {
	Name   string
	Output json.RawMessage // if it completed
	Failed string          // the message, if it failed for good
}

// Sleep is a sleep, or a wait for an event, and what it asked for.
type Sleep struct {
	Name     string
	Duration time.Duration
}

// Event is something that the handler published.
type Event struct {
	Topic   string
	Key     string
	Payload json.RawMessage
}

// Run runs a registered handler to its end, through all retries and waits. The
// input is encoded as JSON unless it is a json.RawMessage or a []byte already.
func Run(t testing.TB, handler string, input any, o Options) Result {
	t.Helper()
	g := Guest(Capabilities{HTTP: o.HTTP, Secrets: o.Secrets})
	known := false
	var names []string
	for _, h := range g.Describe().Handlers {
		names = append(names, h.Name)
		known = known || h.Name == handler
	}
	if !known {
		t.Fatalf("guesttest: there is no handler %q; registered are: %s", handler, strings.Join(names, ", "))
	}
	raw, ok := input.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(input); err != nil {
			t.Fatalf("guesttest: the input cannot be written as JSON: %v", err)
		}
	}
	m := abitest.NewMemory(o.config(t, handler))
	out := abitest.Drive(context.Background(), g, m, handler, raw)
	if out.Err == errLeft {
		t.FailNow()
	}
	r := result(m, out)
	if out.Kind == abi.Done && !o.NoReplayCheck {
		replay(t, g, m, handler, raw, out)
	}
	return r
}

func (o Options) config(t testing.TB, handler string) abitest.Config {
	c := abitest.Config{
		MaxAttempts: o.MaxAttempts, Start: o.Start, Job: handler, Queue: o.Queue, Tenant: o.Tenant,
		Jobs: o.Jobs, Events: o.Events, Unsupported: o.Unsupported, Compensates: o.Compensates,
	}
	if o.Invoke != nil {
		c.Invoke = func(p abi.EnqueueParams) ([]byte, *abi.Failure) {
			out, failure := o.Invoke(p.Job, p.Input)
			if failure != nil {
				return nil, failure
			}
			b, err := json.Marshal(out)
			if err != nil {
				t.Errorf("guesttest: the output of child %s cannot be written as JSON: %v", p.Job, err)
			}
			return b, nil
		}
	}
	return c
}

func result(m *abitest.Memory, out abi.Outcome) Result {
	r := Result{
		Output: json.RawMessage(out.Output), Logs: m.Lines(), Attempts: m.Number(), Runs: m.Runs(),
		Elapsed: m.Now().Sub(m.Start()), Transcript: m.Transcript(), Undone: m.Undone(),
	}
	switch out.Kind {
	case abi.Failed, abi.Crashed:
		r.Err = &abi.Error{Code: out.Failure.Code, Message: out.Failure.Message, Fix: out.Failure.Fix, Err: out.Err}
	case abi.Stopped:
		r.Err = out.Err
	}
	for _, rec := range m.Records() {
		switch rec.Kind {
		case abi.FuncStepBegin:
			s := Step{Name: rec.Name}
			if rec.Status == abitest.Completed {
				s.Output = rec.Output
			} else {
				s.Failed = rec.Failure.Message
			}
			r.Steps = append(r.Steps, s)
		case abi.FuncSleep, abi.FuncWaitEvent:
			r.Sleeps = append(r.Sleeps, Sleep{rec.Name, rec.Wait})
		}
	}
	for _, s := range m.Sent() {
		if s.Topic != "" {
			r.Published = append(r.Published, Event{s.Topic, s.Key, s.Payload})
			continue
		}
		r.Enqueued = append(r.Enqueued, s.Run)
	}
	return r
}

// replay runs the finished run once more from its records: as after a worker
// that died before it could settle.
func replay(t testing.TB, g abi.Guest, m *abitest.Memory, handler string, input []byte, first abi.Outcome) {
	t.Helper()
	before := len(m.Records())
	out := g.Run(context.Background(), m.Attempt(handler, input), m)
	const hint = "what may differ from one attempt to the next belongs into a step"
	switch rs := m.Records(); {
	case out.Kind != abi.Done:
		t.Errorf("guesttest: the handler is not deterministic: it was done, but its replay ended %v: %v%v; %s",
			out.Kind, out.Failure.Message, text(out.Err), hint)
	case len(rs) > before:
		t.Errorf("guesttest: the handler is not deterministic: its replay asked for %q, which it did not the first time; %s", rs[before].Name, hint)
	case len(m.Unreached()) > 0:
		t.Errorf("guesttest: the handler is not deterministic: its replay did not ask for %q; %s", m.Unreached()[0], hint)
	case !bytes.Equal(out.Output, first.Output):
		t.Errorf("guesttest: the handler is not deterministic: it returned %s, its replay %s; %s", first.Output, out.Output, hint)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
