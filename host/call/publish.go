package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// publish(topic, n, key, n, p, n) -> 0: an event with a JSON payload.
//
// Answers abi.CodeLimit beyond abi.MaxInput, abi.CodeInvalid for a key that is
// none, and what Publish refuses.
func publish(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncPublish)
	topic := s.name(mem, abi.FuncPublish, stack[0], stack[1])
	key, err := wire.Key(abi.FuncPublish, s.view(mem, abi.FuncPublish, stack[2], stack[3]))
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	payload := s.copied(mem, abi.FuncPublish, stack[4], stack[5])
	if err := wire.JSON(abi.FuncPublish, "the payload", payload, abi.MaxInput); err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.leaveToSend()
	err = s.calls.Publish(s.Context, abi.PublishParams{Topic: topic, Key: key, Payload: payload})
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	stack[0] = 0
}
