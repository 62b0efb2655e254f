package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// log(level, p, n): a line for the operator. Of more than abi.MaxLogLine bytes
// the rest is cut.
func logLine(s *State, mem api.Memory, stack []uint64) {
	text := s.view(mem, abi.FuncLog, stack[1], stack[2])
	s.log(wire.Level(uint32(stack[0])), string(text[:min(len(text), maxLine)]))
}
