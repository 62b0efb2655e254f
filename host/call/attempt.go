package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// attempt() -> n: the number of this attempt, from 1.
func attempt(s *State, _ api.Memory, stack []uint64) {
	s.attempting(abi.FuncAttempt)
	stack[0] = uint64(uint32(s.attempt.Meta.Attempt))
}
