package call

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
)

// errText is an error as the runtime makes it.
type errText string

func (e errText) Error() string { return string(e) }

func TestHowAnAttemptEnds(t *testing.T) {
	const trap = errText("wasm error: unreachable\nwasm stack trace:\n\tmain.f()")
	for name, c := range map[string]struct {
		do      func(g *guest) Ended
		kind    abi.OutcomeKind
		code    string
		failure abi.FailureKind
		message string
		after   Aftermath
	}{
		"returned with output": {func(g *guest) Ended { g.want(0, abi.FuncOutput, `1`); return Ended{} }, abi.Done, "", 0, "", Reset},
		"returned without output": {func(g *guest) Ended { return Ended{} }, abi.Crashed, abi.CodeGuestNoOutput, abi.FailTerminal,
			"without calling output", Reset},
		"failed": {func(g *guest) Ended {
			g.want(0, abi.FuncFail, 1, `{"message":"no","code":"X_NO"}`)
			return Ended{Result: abi.RunFailed}
		}, abi.Failed, "X_NO", abi.FailTerminal, "no", Reset},
		"failed without fail": {func(g *guest) Ended { return Ended{Result: abi.RunFailed} }, abi.Crashed, abi.CodeABIViolation, abi.FailTerminal,
			"without calling fail", Reset},
		"unknown answer": {func(g *guest) Ended { return Ended{Result: 0xffffffff} }, abi.Crashed, abi.CodeABIViolation, abi.FailTerminal,
			"unknown answer -1", Reset},
		"returned inside a step": {func(g *guest) Ended {
			g.want(0, abi.FuncStepBegin, "a", 0)
			g.want(0, abi.FuncOutput, `1`)
			return Ended{}
		}, abi.Crashed, abi.CodeABIViolation, abi.FailTerminal, `inside step "a"`, Reset},
		"trapped": {func(g *guest) Ended { return Ended{Err: trap} }, abi.Crashed, abi.CodeGuestTrap, abi.FailRetry, "trapped: unreachable", DropStack},
		"trapped after a panic": {func(g *guest) Ended {
			g.write(2, "panic: boom [recovered]\n\ngoroutine 1")
			return Ended{Err: trap}
		}, abi.Crashed, abi.CodeGuestTrap, abi.FailRetry, "trapped: unreachable: panic: boom [recovered]", DropStack},
		"trapped with its last words unfinished": {func(g *guest) Ended {
			g.write(2, "panic: boom")
			return Ended{Err: trap}
		}, abi.Crashed, abi.CodeGuestTrap, abi.FailRetry, "panic: boom", DropStack},
		"deadlocked": {func(g *guest) Ended {
			g.write(2, "fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [chan receive]:\n")
			return Ended{Err: trap}
		}, abi.Crashed, abi.CodeGuestDeadlock, abi.FailTerminal, "every goroutine", DropStack},
		"out of memory": {func(g *guest) Ended { return Ended{Err: trap, Refused: 1, Limit: 64 << 20} }, abi.Crashed, abi.CodeGuestMemory, abi.FailTerminal,
			"its limit is 64 MiB", DropStack},
		"refused memory and went on": {func(g *guest) Ended { g.want(0, abi.FuncOutput, `1`); return Ended{Refused: 3} }, abi.Done, "", 0, "", Reset},
		"native stack overflowed": {func(g *guest) Ended { return Ended{Err: errText("stack overflow")} }, abi.Crashed, abi.CodeGuestStack, abi.FailTerminal,
			"call stack", Discard},
		"host function broke": {func(g *guest) Ended {
			return Ended{Err: errText("runtime error: index out of range (recovered by wazero)\nwasm stack trace:")}
		}, abi.Crashed, abi.CodeHostFailure, abi.FailRetry, "the host failed", Discard},
		"exit 0 without output": {func(g *guest) Ended { g.try("proc_exit", 0); return Ended{Err: unwound} }, abi.Crashed, abi.CodeGuestNoOutput, abi.FailTerminal,
			"without calling output", Reset},
		"exit 0 with output": {func(g *guest) Ended {
			g.want(0, abi.FuncOutput, `1`)
			g.try("proc_exit", 0)
			return Ended{Err: unwound, Result: 8}
		}, abi.Done, "", 0, "", Reset},
		"exit 3": {func(g *guest) Ended { g.try("proc_exit", 3); return Ended{Err: unwound} }, abi.Crashed, abi.CodeGuestExit, abi.FailRetry,
			"exited with code 3", Reset},
		"exit with the host's own number": {func(g *guest) Ended { g.try("proc_exit", 0x5ec00001); return Ended{Err: unwound} }, abi.Crashed, abi.CodeGuestExit, abi.FailRetry,
			"exited with code", Reset},
		"exit 0 inside a step": {func(g *guest) Ended {
			g.want(0, abi.FuncStepBegin, "a", 0)
			g.try("proc_exit", 0)
			return Ended{Err: unwound}
		}, abi.Crashed, abi.CodeABIViolation, abi.FailTerminal, `inside step "a"`, Reset},
	} {
		t.Run(name, func(t *testing.T) {
			g := begin(t, &fakeCalls{}, nil)
			e := c.do(g)
			e.Export = abi.ExportRun
			out, after := g.state.End(e)
			if out.Kind != c.kind || after != c.after {
				t.Fatalf("ends as %v (%v), want %v (%v): %+v", out.Kind, after, c.kind, c.after, out)
			}
			if f := out.Failure; f.Code != c.code || f.Kind != c.failure || !strings.Contains(f.Message, c.message) {
				t.Errorf("failure %+v", f)
			}
			if (out.Kind == abi.Crashed) != (out.Err != nil) {
				t.Errorf("error %v", out.Err)
			}
			if out.Kind == abi.Done && string(out.Output) != "1" {
				t.Errorf("output %s", out.Output)
			}
		})
	}
}

func TestALongRunGivesItsNativeStackBack(t *testing.T) {
	for ticks, want := range map[int]Aftermath{0: Reset, deepTicks - 1: Reset, deepTicks: DropStack} {
		g := begin(t, &fakeCalls{}, nil)
		for range ticks {
			g.call("tick")
		}
		g.want(0, abi.FuncOutput, "1")
		if out, after := g.state.End(Ended{}); out.Kind != abi.Done || after != want {
			t.Errorf("after %d ticks: %v, %+v", ticks, after, out)
		}
	}
}

func TestAModuleThatDoesNotComeUpSaysWhy(t *testing.T) {
	mod := instantiate(t)
	s := BringUp(t.Context(), fakeCaps{})
	g := &guest{t: t, mod: mod, state: s, next: 1024}
	g.write(2, "reading config\nno config, giving up\n\n")
	g.try("proc_exit", 1)
	err := s.Check(Ended{Export: abi.ExportInitialize, Err: unwound})
	if abi.CodeOf(err) != CodeModuleInit || !strings.Contains(err.Error(), "_initialize: the guest exited with code 1; the last it said on stderr: no config, giving up") {
		t.Errorf("error %v", err)
	}
}

func TestTheLastOutputCounts(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	g.want(0, abi.FuncOutput, `1`)
	g.want(0, abi.FuncFail, 0, `{"message":"x"}`)
	g.want(0, abi.FuncOutput, `2`)
	if out, _ := g.state.End(Ended{}); out.Kind != abi.Done || string(out.Output) != "2" {
		t.Errorf("outcome %+v", out)
	}
}

func TestATrapTellsWhatTheGuestSaidLast(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	g.write(2, strings.Repeat("noise\n", 5000)+"the end")
	out, _ := g.state.End(Ended{Err: errText("wasm error: unreachable\nwasm stack trace:\n\tmain.f()")})
	if s := out.Failure.Stack; !strings.Contains(s, "the end") || !strings.Contains(s, "main.f()") || len(s) > abi.MaxFailure {
		t.Errorf("stack of %d bytes: %.60q", len(s), s)
	}
}

func TestATickStopsAnAttemptWhoseContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	g := beginWith(t, ctx, BeginParams{Attempt: &abi.Attempt{}, Calls: &fakeCalls{}, Quantum: 123})
	if got := g.call("tick"); got != 123 {
		t.Errorf("a tick answers %d", got)
	}
	cancel(errUp)
	if _, unwound := g.try("tick"); !unwound {
		t.Fatal("the tick let it go on")
	}
	if out, _ := g.state.End(Ended{Err: unwound}); out.Kind != abi.Stopped || out.Err != errUp {
		t.Errorf("outcome %+v", out)
	}
}

func TestACallStopsAnAttemptWhoseContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	g := beginWith(t, ctx, BeginParams{Attempt: &abi.Attempt{}, Calls: &fakeCalls{}})
	cancel(errUp)
	if _, unwound := g.try(abi.FuncStepBegin, g.args("a", 0)...); !unwound {
		t.Fatal("the step began")
	}
	if out, _ := g.state.End(Ended{Err: unwound}); out.Kind != abi.Stopped || out.Err != errUp {
		t.Errorf("outcome %+v", out)
	}
}

func TestAWaitingGuestHoldsNoSlot(t *testing.T) {
	slots := NewSlots(1)
	var inCall, afterwards int
	calls := &fakeCalls{end: func(string) (time.Time, error) { inCall = slots.InUse(); return epoch, nil }}
	g := beginWith(t, t.Context(), BeginParams{Attempt: &abi.Attempt{}, Calls: calls, Slots: slots})
	g.want(0, abi.FuncStepBegin, "a", 0)
	g.want(0, abi.FuncStepEnd, "1")
	afterwards = slots.InUse()
	g.state.Close()
	if inCall != 0 || afterwards != 1 || slots.InUse() != 0 {
		t.Errorf("slots in use: in the call %d, after it %d, after the attempt %d", inCall, afterwards, slots.InUse())
	}
}

func TestABusyGuestMakesRoomAtItsTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(1)
		p := BeginParams{Attempt: &abi.Attempt{}, Calls: &fakeCalls{}, Capabilities: fakeCaps{}, Slots: slots}
		busy, err := Begin(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		other := make(chan *State)
		go func() {
			s, _ := Begin(t.Context(), p)
			other <- s
		}()
		synctest.Wait() // the other waits for the slot
		busy.yield()    // returns: its slice is not over
		time.Sleep(slice)
		yielded := make(chan struct{})
		go func() {
			busy.yield()
			close(yielded)
		}()
		s := <-other
		synctest.Wait()
		select {
		case <-yielded:
			t.Fatal("both run on one slot")
		default:
		}
		s.Close()
		<-yielded
		busy.Close()
		if slots.InUse() != 0 {
			t.Error("a slot is still taken")
		}
	})
}

func TestAnAttemptThatGetsNoSlotInTime(t *testing.T) {
	slots := NewSlots(1)
	var taken ticket
	if err := slots.acquire(t.Context(), &taken); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errUp)
	for range 2 { // whether the slot is free or not
		if _, err := Begin(ctx, BeginParams{Attempt: &abi.Attempt{}, Slots: slots}); !errors.Is(err, errUp) {
			t.Errorf("error %v", err)
		}
		if slots.InUse() == 1 {
			slots.release(&taken)
		}
	}
}
