package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// enqueue(p, n) -> length: sends runs of other jobs.
//
// (p, n) is one abi.EnqueueParams as JSON or an array of them:
//
//	{"job":"mail","input":{"to":"x"},"delay_ms":60000}
//
// The last result is an array with an abi.EnqueueResult for each, in order:
//
//	[{"id":"0190…"}]
//
// Answers abi.CodeLimit and abi.CodeInvalid as wire.DecodeEnqueue and Enqueue
// refuse, with the reason as last result.
func enqueue(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncEnqueue)
	// The decoder copies what it keeps.
	runs, err := wire.DecodeEnqueue(s.view(mem, abi.FuncEnqueue, stack[0], stack[1]))
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.leaveToSend()
	results, err := s.calls.Enqueue(s.Context, runs)
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	stack[0] = s.answer(wire.AppendEnqueued(nil, results))
}

// leaveToSend is for what commits with the open step, and at once if none is.
func (s *State) leaveToSend() {
	if s.inStep {
		s.leaveBriefly()
	} else {
		s.leave()
	}
}
