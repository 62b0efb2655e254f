package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// secret(name, n) -> length: the secret's value as last result. From then on
// exact matches of it are removed from what the attempt records and logs.
//
// Answers abi.CodeDenied for a secret that was not granted.
func secret(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncSecret)
	name := s.name(mem, abi.FuncSecret, stack[0], stack[1])
	s.leaveBriefly()
	value, err := s.caps.Secret(s.Context, name)
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.learn(value)
	stack[0] = s.answer([]byte(value))
}
