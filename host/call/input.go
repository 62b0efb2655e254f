package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// input() -> length: the run's input, JSON, as last result.
func input(s *State, _ api.Memory, stack []uint64) {
	s.attempting(abi.FuncInput)
	stack[0] = s.answer(s.attempt.Input)
}
