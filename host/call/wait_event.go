package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// wait_event(name, n, topic, n, key, n, ms) -> length: the payload of the event
// that the wait is for, as last result; until then the guest is unwound and the
// run suspended. An empty key takes events of any.
//
// A negative ms takes no event and answers abi.CodeTimeout at once: the next wait
// for the topic and key counts from here.
//
// Answers abi.CodeTimeout when ms milliseconds passed without one,
// abi.CodeOutsideStepOnly inside a step, abi.CodeLimit beyond abi.MaxSleep,
// abi.CodeInvalid for a key that is none.
func waitEvent(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncWaitEvent)
	name := s.name(mem, abi.FuncWaitEvent, stack[0], stack[1])
	topic := s.name(mem, abi.FuncWaitEvent, stack[2], stack[3])
	key, err := wire.Key(abi.FuncWaitEvent, s.view(mem, abi.FuncWaitEvent, stack[4], stack[5]))
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	timeout, err := wire.Duration(int64(stack[6]))
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	if int64(stack[6]) < 0 {
		timeout = -1
	}
	if s.inStep {
		stack[0] = codeOutsideStepOnly
		return
	}
	s.leaveBriefly()
	payload, at, err := s.calls.WaitEvent(s.Context, abi.WaitParams{Name: name, Topic: topic, Key: key, Timeout: timeout})
	s.enter()
	// A wait that timed out has an instant too.
	s.clock.observe(at)
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	stack[0] = s.answer(payload)
}
