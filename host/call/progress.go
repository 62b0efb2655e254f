package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// progress(permille, p, n): how far the run is, with a note of at most
// abi.MaxProgressNote bytes; the rest is cut.
func progress(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncProgress)
	note := s.view(mem, abi.FuncProgress, stack[1], stack[2])
	text := s.redact(string(note[:min(len(note), abi.MaxProgressNote+beyondCut)]))
	s.calls.Progress(s.Context, wire.Permille(int32(stack[0])), wire.Note([]byte(text)))
}
