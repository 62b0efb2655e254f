package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// step_fail(kind, p, n) -> 0: the open step failed. It returns when the failure
// is final and recorded; while the step's policy has a retry left, the guest is
// unwound.
//
// (p, n) and kind are those of fail. Outside a step it is a violation.
func stepFail(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncStepFail)
	if !s.inStep {
		s.violate(abi.FuncStepFail, "no step is open")
	}
	f := s.readFailure(mem, abi.FuncStepFail, stack[0], stack[1], stack[2])
	s.leave()
	at, err := s.calls.StepFail(s.Context, f)
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.inStep = false
	s.clock.leaveStep(at)
	stack[0] = 0
}
