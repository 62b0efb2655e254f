package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// invoke(p, n) -> length: enqueues a child run and answers its output as last
// result once it has settled; until then the guest is unwound.
//
// (p, n) is one abi.EnqueueParams as JSON.
//
// Answers abi.CodeOutsideStepOnly inside a step, abi.CodeFailed with the
// child's failure as last result, and what enqueue does.
func invoke(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncInvoke)
	// The decoder copies what it keeps.
	run, err := wire.DecodeInvoke(s.view(mem, abi.FuncInvoke, stack[0], stack[1]))
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	if s.inStep {
		stack[0] = codeOutsideStepOnly
		return
	}
	s.leave()
	out, at, err := s.calls.Invoke(s.Context, run)
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.clock.observe(at)
	stack[0] = s.answer(out)
}
