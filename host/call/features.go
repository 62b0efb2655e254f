package call

import (
	"github.com/tetratelabs/wazero/api"
)

// features() -> bits: the abi.Features that the host serves and the module was
// granted.
func features(s *State, _ api.Memory, stack []uint64) {
	bits := s.caps.Features()
	if s.calls != nil {
		bits |= s.calls.Features()
	}
	stack[0] = uint64(bits)
}
