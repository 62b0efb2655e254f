package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// sql(p, n) -> length: runs a statement, stated as JSON, that commits with the
// open step; the last result is the JSON answer.
//
// Answers abi.CodeInsideStepOnly outside a step, abi.CodeLimit beyond
// abi.MaxInput, and what SQL refuses, such as abi.CodeDenied.
func sql(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncSQL)
	if !s.inStep {
		stack[0] = codeInsideStepOnly
		return
	}
	request := s.copied(mem, abi.FuncSQL, stack[0], stack[1])
	if err := wire.JSON(abi.FuncSQL, "the request", request, abi.MaxInput); err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.leave()
	result, err := s.calls.SQL(s.Context, request)
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	stack[0] = s.answer(result)
}
