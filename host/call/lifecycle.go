package call

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// BeginParams is what an attempt needs.
type BeginParams struct {
	Attempt      *abi.Attempt // not changed
	Calls        abi.Calls
	Capabilities Capabilities
	Slots        *Slots // nil for none
	Quantum      uint32 // fuel between ticks; 0 is Quantum
}

// Begin takes a slot and makes the State of an attempt. The caller then calls
// the guest with the State as the context (Enter first), passes what came of it
// to End, and Close at last. An error is the context's cause: it ended while
// the attempt waited for a slot.
func Begin(ctx context.Context, p BeginParams) (*State, error) {
	s := &State{
		Context: ctx, calls: p.Calls, caps: p.Capabilities, slots: p.Slots, attempt: p.Attempt, quantum: p.Quantum,
		clock:  newClock(p.Attempt.Now),
		random: random{state: p.Attempt.Seed},
	}
	if s.quantum == 0 {
		s.quantum = Quantum
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if s.slots != nil {
		if err := s.slots.acquire(ctx, &s.ticket); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// BringUp is the State in which a module starts, warms up and describes itself:
// always the same clock and random numbers, and nothing to call but those and
// log.
func BringUp(ctx context.Context, caps Capabilities) *State {
	return &State{Context: ctx, caps: caps, quantum: Quantum, clock: newClock(bootTime), random: random{state: 1}}
}

// Probe is a State as BringUp makes it, for an instance that was brought up
// before: its clock is later, and it keeps a Transcript.
func Probe(ctx context.Context, caps Capabilities) *State {
	return &State{Context: ctx, caps: caps, quantum: Quantum, clock: newClock(bootTime.AddDate(0, 0, 1)), random: random{state: 2}, recorder: newRecorder()}
}

// Describing allows the module that is brought up to call output.
func (s *State) Describing() { s.describing = true }

// Fuel is what the guest burns before its first tick.
func (s *State) Fuel() uint32 { return s.quantum }

// Enter starts the CPU time; the guest is called next.
func (s *State) Enter() { s.proceed() }

// Close gives the slot up, if the attempt still has one.
func (s *State) Close() {
	if s.slots != nil {
		s.slots.release(&s.ticket)
	}
}

// Transcript is a digest of what the guest called and put out.
func (s *State) Transcript() []byte { return s.recorder.sum() }

// Output is what the guest passed to output last; nil if it never did.
func (s *State) Output() []byte { return s.output }

// Ended is how a call into a guest ended.
type Ended struct {
	Export  string // what was called
	Result  uint32
	Err     error  // of wazero
	Memory  uint64 // size of linear memory, in bytes
	Limit   uint64 // of it
	Refused int    // growths that the limit refused
}

// Aftermath is what the end of a call asks of the instance.
type Aftermath int

const (
	// Reset: resetting it makes it as new.
	Reset Aftermath = iota
	// DropStack: besides, its native stacks may have grown.
	DropStack
	// Discard: something outside its memory may be wrong.
	Discard
)

// End is the outcome of an attempt whose runner_run ended so.
func (s *State) End(e Ended) (abi.Outcome, Aftermath) {
	s.pause()
	if s.calls != nil {
		s.flushLine(0)
		s.flushLine(stderr)
	}
	out, after := s.end(e)
	if after == Reset && s.ticks >= deepTicks {
		after = DropStack
	}
	out.Usage = abi.Usage{CPU: s.cpu, MemoryBytes: e.Memory, StdioBytes: s.stdio.total, StdioDropped: s.stdio.dropped}
	return out, after
}

// deepTicks is after how many ticks a guest may have called itself so deep that
// its native stack is worth freeing: no module's memory limit covers that.
const deepTicks = 4

func (s *State) end(e Ended) (abi.Outcome, Aftermath) {
	if s.ended == stopped {
		return abi.Outcome{Kind: abi.Stopped, Err: s.err}, Reset
	}
	f, after, cause := s.crash(e)
	if cause == nil && s.inStep {
		f, cause = s.violation(&abi.Violation{Func: e.Export, Detail: fmt.Sprintf("it returned inside step %q", s.step)})
	}
	if s.ended == exited {
		e.Result = abi.RunDone // an exit with 0 answers nothing else
	}
	if cause == nil {
		switch {
		case e.Result == abi.RunDone && s.hasOut:
			return abi.Outcome{Kind: abi.Done, Output: s.output}, after
		case e.Result == abi.RunDone:
			cause = errNoOutput
			f = abi.Failure{Kind: abi.FailTerminal, Code: abi.CodeGuestNoOutput, Message: "the handler returned without calling output",
				Fix: "use an SDK, or call output before runner_run returns 0"}
		case e.Result == abi.RunFailed && s.failure != nil:
			return abi.Outcome{Kind: abi.Failed, Failure: *s.failure}, after
		case e.Result == abi.RunFailed:
			f, cause = s.violation(&abi.Violation{Func: e.Export, Detail: "it answered that it failed without calling fail"})
		default:
			f, cause = s.violation(&abi.Violation{Func: e.Export, Detail: fmt.Sprintf("unknown answer %d", int32(e.Result))})
		}
	}
	return abi.Outcome{Kind: abi.Crashed, Failure: f, Err: cause}, after
}

var errNoOutput = errors.New("the guest returned without output")

// Check is the error of a call while the module is brought up; nil if it
// returned, and answered 0 where it answers.
func (s *State) Check(e Ended) error {
	s.pause()
	s.flushLine(stderr)
	if s.ended == stopped {
		return s.err
	}
	f, _, cause := s.crash(e)
	if cause == nil && s.ended == exited {
		f.Message, cause = "it exited with code 0", errors.New("exit")
	}
	if cause == nil && e.Result != 0 {
		f.Message, cause = fmt.Sprintf("it answered %d", int32(e.Result)), errors.New("result")
	}
	if cause == nil {
		return nil
	}
	message := e.Export + ": " + f.Message
	if said := lastLine(s.stderrTail()); said != "" && !strings.Contains(message, said) {
		message += "; the last it said on stderr: " + said
	}
	return &abi.Error{Code: CodeModuleInit, Message: message, Fix: "the module must start, and describe itself, without input", Err: cause}
}

// lastLine is the last line of text that is not empty, as one that can be shown.
func lastLine(text string) string {
	text = strings.TrimRight(text, "\r\n\t ")
	return wire.Note([]byte(text[strings.LastIndexByte(text, '\n')+1:]))
}

// CodeModuleInit: a module cannot be brought up.
const CodeModuleInit = "X_MODULE_INIT"

// crash sorts out what ended a guest that did not return; the cause is nil if
// it did, or exited with 0.
func (s *State) crash(e Ended) (abi.Failure, Aftermath, error) {
	switch s.ended {
	case violated:
		f, cause := s.violation(s.err)
		return f, Reset, cause
	case exited:
		if s.exitCode == 0 {
			return abi.Failure{}, Reset, nil
		}
		cause := fmt.Errorf("the guest exited with code %d", s.exitCode)
		return s.described(abi.Failure{Code: abi.CodeGuestExit, Message: cause.Error()}), Reset, cause
	case aborted:
		text := s.redact(s.abort)
		return s.described(abi.Failure{Code: abi.CodeGuestTrap, Message: "the guest aborted: " + text}), Reset, errors.New("abort: " + text)
	}
	if e.Err == nil {
		return abi.Failure{}, Reset, nil
	}
	text := e.Err.Error()
	trap, isTrap := strings.CutPrefix(text, "wasm error: ")
	switch {
	case text == "stack overflow":
		return s.described(abi.Failure{Kind: abi.FailTerminal, Code: abi.CodeGuestStack, Message: "the guest's call stack overflowed",
			Fix: "look for a recursion without an end"}), Discard, e.Err
	case !isTrap:
		return abi.Failure{Code: abi.CodeHostFailure, Message: "the host failed while it served the guest",
			Fix: "the operator finds the cause in the runner's log"}, Discard, e.Err
	}
	reason, trace, _ := strings.Cut(trap, "\n")
	f := abi.Failure{Code: abi.CodeGuestTrap, Message: "the guest trapped: " + reason, Stack: trace}
	switch {
	case e.Refused > 0:
		f.Kind, f.Code = abi.FailTerminal, abi.CodeGuestMemory
		f.Message = fmt.Sprintf("the guest ran out of memory: its limit is %d MiB", e.Limit>>20)
		f.Fix = "raise the memory limit, or handle the input in smaller parts"
	case s.deadlocked():
		f.Kind, f.Code = abi.FailTerminal, abi.CodeGuestDeadlock
		f.Message = "every goroutine of the guest is asleep"
		f.Fix = "look for a channel or lock that nobody serves"
	}
	return s.described(f), DropStack, e.Err
}

// violation is the failure of a guest that breaks the contract.
func (s *State) violation(cause error) (abi.Failure, error) {
	fix := "build the module with a current SDK"
	var v *abi.Violation
	if errors.As(cause, &v) && v.Fix != "" {
		fix = v.Fix
	}
	return s.described(abi.Failure{Kind: abi.FailTerminal, Code: abi.CodeABIViolation, Message: cause.Error(), Fix: fix}), cause
}

// described adds what the guest said on stderr, and fits the failure for being
// kept.
func (s *State) described(f abi.Failure) abi.Failure {
	if s.stdio.fatal != "" && f.Code == abi.CodeGuestTrap {
		f.Message += ": " + s.stdio.fatal
	}
	f.Message = s.redact(f.Message)
	if tail := s.stderrTail(); tail != "" {
		if f.Stack != "" {
			f.Stack = "\n\n" + f.Stack
		}
		f.Stack = "stderr:\n" + tail + f.Stack
	}
	f.Stack = s.redact(f.Stack)
	return wire.ClipFailure(f)
}
