package call

import (
	"github.com/tetratelabs/wazero/api"
)

// result_len() -> length of the last result.
func resultLen(s *State, _ api.Memory, stack []uint64) { stack[0] = uint64(uint32(len(s.result))) }
