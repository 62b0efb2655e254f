package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// compensate(name, n) -> 0: the guest is about to undo the completed step name.
//
// Answers abi.CodeOutsideStepOnly inside a step, and what Compensate refuses,
// such as abi.CodeUnsupported.
func compensate(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncCompensate)
	name := s.name(mem, abi.FuncCompensate, stack[0], stack[1])
	if s.inStep {
		stack[0] = codeOutsideStepOnly
		return
	}
	s.leaveBriefly()
	err := s.calls.Compensate(s.Context, name)
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	stack[0] = 0
}
