package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// compensate() -> length: opens the undoing of a completed step, whose name is
// the last result; 0 if there is nothing to undo.
//
// Answers abi.CodeOutsideStepOnly inside a step, and what Compensate refuses,
// such as abi.CodeUnsupported.
func compensate(s *State, _ api.Memory, stack []uint64) {
	s.attempting(abi.FuncCompensate)
	if s.inStep {
		stack[0] = codeOutsideStepOnly
		return
	}
	s.leaveBriefly()
	name, err := s.calls.Compensate(s.Context)
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	if name != "" {
		s.step, s.inStep = name, true
		s.clock.enterStep()
		s.result = []byte(name)
	}
	stack[0] = uint64(len(name))
}
