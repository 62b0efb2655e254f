package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// invoke(p, n, limit) -> count: makes child runs and answers how many once all
// of them have settled; until then the guest is unwound. invoke_result then says
// how each ended.
//
// (p, n) is one abi.EnqueueParams as JSON, or an array of them; of these at most
// limit are live at a time, and abi.MaxInvoke for 0 and what is out of range.
//
// Answers abi.CodeOutsideStepOnly inside a step, and what enqueue does.
func invoke(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncInvoke)
	// The decoder copies what it keeps.
	runs, err := wire.DecodeInvoke(s.view(mem, abi.FuncInvoke, stack[0], stack[1]))
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	if s.inStep {
		stack[0] = codeOutsideStepOnly
		return
	}
	limit := int(int32(stack[2]))
	if limit <= 0 || limit > abi.MaxInvoke {
		limit = abi.MaxInvoke
	}
	s.leave()
	results, at, err := s.calls.Invoke(s.Context, runs, limit)
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.clock.observe(at)
	s.children = results
	stack[0] = uint64(uint32(len(results)))
}

// invoke_result(i) -> length: the output of the i-th child of the latest invoke,
// from 0, as last result.
//
// Answers abi.CodeFailed with the child's failure as last result if it did not
// end well. An index of no child is a violation.
func invokeResult(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncInvokeResult)
	i := uint32(stack[0])
	if uint64(i) >= uint64(len(s.children)) {
		s.violate(abi.FuncInvokeResult, "there is no child %d: the latest invoke had %d", i, len(s.children))
	}
	if f := s.children[i].Failure; f != nil {
		stack[0] = s.refuse(&abi.Refusal{Code: abi.CodeFailed, Failure: *f})
		return
	}
	stack[0] = s.answer(s.children[i].Output)
}
