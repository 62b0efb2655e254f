package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// random(p, n): n random bytes at p, from the run's generator outside a step,
// the system's inside.
func randomBytes(s *State, mem api.Memory, stack []uint64) {
	s.fillRandom(s.view(mem, abi.FuncRandom, stack[0], stack[1]))
}
