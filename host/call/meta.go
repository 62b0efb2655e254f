package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// meta() -> length: the abi.Meta as JSON, as last result.
func meta(s *State, _ api.Memory, stack []uint64) {
	s.attempting(abi.FuncMeta)
	b, err := wire.AppendMeta(nil, s.attempt.Meta)
	if err != nil {
		panic(err) // a time that JSON cannot hold: whoever made the attempt is wrong
	}
	stack[0] = s.answer(b)
}
