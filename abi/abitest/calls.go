package abitest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
)

// Run is one run of an engine under test, which TestCalls takes through its
// attempts without any guest.
type Run interface {
	// Begin claims the run, which is due, and answers the attempt's Calls.
	Begin(tb testing.TB) abi.Calls
	// End settles the attempt as a worker does, and makes the run due again if
	// an attempt is to follow.
	End(tb testing.TB, out abi.Outcome)
	// Pass lets time go by on the store's clock and on the engine's.
	Pass(d time.Duration)
	// Enqueued is what the run has enqueued and what is committed, in order.
	Enqueued(tb testing.TB) []abi.EnqueueParams
	// Publish publishes an event as someone else does.
	Publish(tb testing.TB, e abi.PublishParams)
	// Children says how invoked children end from now on: each does when the run
	// has suspended for it.
	Children(end func(child abi.EnqueueParams) ([]byte, *abi.Failure))
}

// RunParams is what TestCalls asks of a run. In its engine there is a job
// "child" without tenant, that takes any input and whose key is new for each
// run unless the caller gives one, and no job "no-such-job".
type RunParams struct {
	MaxAttempts int
}

// TestCalls runs every case of the contract that concerns a run's memory over
// an engine's Calls. start makes a run that has not been claimed, each time in
// a store of its own or under a name of its own. Of the optional functions it
// checks that those which Features does not announce say so, and of the others
// that they keep the contract.
func TestCalls(t *testing.T, start func(tb testing.TB, p RunParams) Run) {
	for _, c := range []struct {
		name string
		test func(h *callsTest)
	}{
		{"a completed step answers its record", completedStep},
		{"bytes come back as they were", exactBytes},
		{"a name is used once in an attempt", usedNames},
		{"no step inside a step, and none ended that is not open", stepStates},
		{"a failure with attempts left is tried again", retriedStep},
		{"a failure for good is recorded and replayed", failedStep},
		{"on the last attempt every failure is final", lastAttempt},
		{"a rate limit is never final", rateLimitedStep},
		{"a once step that ended replays", onceEnded},
		{"a once step that reported its failure runs again", onceFailed},
		{"a once step that was cut off stops the run", onceUnknown},
		{"a step that was cut off runs again", cutOff},
		{"a sleep suspends until its time", sleeps},
		{"a sleep until an instant is one record", sleepsUntil},
		{"an instant that has passed is no long sleep", sleepsUntilLate},
		{"no time is over at once", noSleep},
		{"nothing sleeps inside a step", sleepInside},
		{"the run's clock only moves forward, and replays", clock},
		{"an enqueue commits with its step", enqueueInside},
		{"an enqueue vanishes with its step's failure", enqueueVanishes},
		{"an enqueue between steps is made once", enqueueOutside},
		{"a key makes one run", enqueueKey},
		{"an unknown job refuses the whole call", enqueueUnknown},
		{"a replay that takes another path is reported", diverges},
		{"the end of the context is passed on", ends},
		{"what is not announced is unsupported", optional},
		{"an event ends a wait, for ever", waitEnds},
		{"a wait that timed out has, whatever comes later", waitTimesOut},
		{"an event from before the first wait does not count", waitBegins},
		{"waits for the same get an event each, in order", waitGoesOn},
		{"a wait takes events of its key", waitKey},
		{"a negative time takes no event and begins anew", subscribes},
		{"an event commits with its step", publishInside},
		{"an event between steps is published once", publishOutside},
		{"an invoke answers how its children ended", invokes},
		{"an invoke keeps to its limit", invokesLimited},
		{"an invoke of an unknown job starts none", invokeUnknown},
		{"nothing waits inside a step", waitInside},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(&callsTest{T: t, start: func(p RunParams) Run { return start(t, p) }})
		})
	}
}

// callsTest is one case under way.
type callsTest struct {
	*testing.T
	start func(RunParams) Run
	run   Run
	calls abi.Calls
}

// begin makes a run, if there is none, and begins its next attempt.
func (h *callsTest) begin(maxAttempts int) {
	h.Helper()
	if h.run == nil {
		h.run = h.start(RunParams{MaxAttempts: maxAttempts})
	}
	h.calls = h.run.Begin(h.T)
}

// again fails the attempt in a way that leaves another, and begins it.
func (h *callsTest) again() {
	h.Helper()
	h.stop(abi.Outcome{Kind: abi.Failed, Failure: abi.Failure{Message: "again"}})
}

// unwound ends the attempt with what unwound it, and begins the next.
func (h *callsTest) unwound(err error) {
	h.Helper()
	h.stop(abi.Outcome{Kind: abi.Stopped, Err: err})
}

func (h *callsTest) stop(out abi.Outcome) {
	h.Helper()
	h.run.End(h.T, out)
	h.calls = h.run.Begin(h.T)
}

// step runs a step that must be new, with that output.
func (h *callsTest) step(name, output string) time.Time {
	h.Helper()
	h.body(name, 0)
	at, err := h.calls.StepEnd(context.Background(), []byte(output))
	if err != nil {
		h.Fatalf("StepEnd of %q: %v", name, err)
	}
	return at
}

// body begins a step that must be new.
func (h *callsTest) body(name string, flags abi.StepFlags) {
	h.Helper()
	if b := h.stepBegin(name, flags); b.State != abi.StepRun || b.Record != nil {
		h.Fatalf("StepBegin of %q answered state %d with %s, want it to run", name, b.State, b.Record)
	}
}

func (h *callsTest) stepBegin(name string, flags abi.StepFlags) abi.StepBegun {
	h.Helper()
	b, err := h.calls.StepBegin(context.Background(), name, flags)
	if err != nil {
		h.Fatalf("StepBegin of %q: %v", name, err)
	}
	return b
}

// replays expects the step's recorded output.
func (h *callsTest) replays(name, output string) time.Time {
	h.Helper()
	b := h.stepBegin(name, 0)
	if b.State != abi.StepDone || string(b.Record) != output {
		h.Fatalf("StepBegin of %q answered state %d with %s, want it done with %s", name, b.State, b.Record, output)
	}
	if b.At.IsZero() {
		h.Errorf("the record of %q has no instant", name)
	}
	return b.At
}

// violation expects err to be one.
func (h *callsTest) violation(err error) {
	h.Helper()
	var v *abi.Violation
	if !errors.As(err, &v) || v.Func == "" || v.Detail == "" {
		h.Errorf("%T %v, want a violation with function and detail", err, err)
	}
}

// refused expects a refusal with that code.
func (h *callsTest) refused(err error, code abi.Code) {
	h.Helper()
	var r *abi.Refusal
	if !errors.As(err, &r) || r.Code != code {
		h.Errorf("%T %v, want a refusal with code %d", err, err, code)
	}
}

// unwinds expects an error that is neither a refusal nor a violation.
func (h *callsTest) unwinds(err error) {
	h.Helper()
	var r *abi.Refusal
	var v *abi.Violation
	if err == nil || errors.As(err, &r) || errors.As(err, &v) {
		h.Fatalf("%T %v, want an error that unwinds", err, err)
	}
}

// coded expects an error that unwinds, with that code.
func (h *callsTest) coded(err error, code string) {
	h.Helper()
	h.unwinds(err)
	if got := abi.CodeOf(err); got != code {
		h.Errorf("%v has code %q, want %q", err, got, code)
	}
}
