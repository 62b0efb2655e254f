package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// result_read(p, cap, off) -> copied: copies min(cap, length-off) bytes of the
// last result, from off, to p. Beyond its end there is nothing to copy.
//
//	last result   h e l l o        result_read(p, 3, 1) -> 3
//	memory at p   e l l
func resultRead(s *State, mem api.Memory, stack []uint64) {
	room, off := uint64(uint32(stack[1])), uint64(uint32(stack[2]))
	length := uint64(len(s.result))
	off = min(off, length)
	n := min(room, length-off)
	copy(s.view(mem, abi.FuncResultRead, stack[0], n), s.result[off:])
	stack[0] = n
}
