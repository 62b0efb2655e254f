package call

import (
	"fmt"

	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// Answers of functions that are legal only inside or only outside a step; the
// last result is left as it is.
const (
	codeInsideStepOnly  = uint64(uint32(0x100000000 + int64(abi.CodeInsideStepOnly)))
	codeOutsideStepOnly = uint64(uint32(0x100000000 + int64(abi.CodeOutsideStepOnly)))
)

// step_begin(name, n, flags) -> abi.StepState: opens a step, or answers its
// record. For abi.StepDone the recorded output is the last result, for
// abi.StepFailed the recorded failure; both as JSON.
//
// Inside a step, and for a name that this attempt has begun before, it is a
// violation.
func stepBegin(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncStepBegin)
	name := s.name(mem, abi.FuncStepBegin, stack[0], stack[1])
	flags, err := wire.StepFlags(uint32(stack[2]))
	if err != nil {
		s.unwind(err)
	}
	if s.inStep {
		s.violate(abi.FuncStepBegin, "step %q begins inside step %q", name, s.step)
	}
	if s.names.has(name) {
		s.violate(abi.FuncStepBegin, "step %q begins a second time in one attempt", name)
	}
	if flags&abi.StepOnce != 0 {
		s.leave() // it is recorded first
	} else {
		s.leaveBriefly()
	}
	begun, err := s.calls.StepBegin(s.Context, name, flags)
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.names.add(name)
	switch begun.State {
	case abi.StepRun:
		s.step, s.inStep = name, true
		s.clock.enterStep()
	case abi.StepDone, abi.StepFailed:
		s.result = begun.Record
		s.clock.observe(begun.At)
	default:
		panic(fmt.Errorf("StepBegin answered the unknown state %d", begun.State))
	}
	stack[0] = uint64(uint32(begun.State))
}
