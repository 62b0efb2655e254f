package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// output(p, n) -> 0: the run's result as JSON, or the description in
// runner_describe. The last call wins.
//
// Answers abi.CodeLimit beyond abi.MaxOutput.
func output(s *State, mem api.Memory, stack []uint64) {
	if !s.describing {
		s.attempting(abi.FuncOutput)
	}
	b := s.view(mem, abi.FuncOutput, stack[0], stack[1])
	if s.recorder != nil {
		s.recorder.bytes(b)
	}
	if err := wire.JSON(abi.FuncOutput, "the output", b, abi.MaxOutput); err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.output, s.hasOut = s.redactJSON(append([]byte(nil), b...)), true
	stack[0] = 0
}
