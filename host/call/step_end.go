package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// step_end(p, n) -> 0: records the open step's JSON output; when it returns,
// the record is durable.
//
// Answers abi.CodeLimit beyond abi.MaxOutput, and what StepEnd refuses; the
// step is then still open. Outside a step it is a violation.
//
// StepEnd is called also when the attempt's context has ended: the body has had
// its effect, and only whoever ended the attempt knows whether it may still be
// recorded. The guest is unwound afterwards.
func stepEnd(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncStepEnd)
	if !s.inStep {
		s.violate(abi.FuncStepEnd, "no step is open")
	}
	out := s.copied(mem, abi.FuncStepEnd, stack[0], stack[1])
	if err := wire.JSON(abi.FuncStepEnd, "the step's output", out, abi.MaxOutput); err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.leaveAnyway()
	at, err := s.calls.StepEnd(s.Context, s.redactJSON(out))
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.inStep = false
	s.clock.leaveStep(at)
	stack[0] = 0
}
