package call

import (
	"encoding/binary"
	"fmt"
	"unicode/utf16"

	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// envTable has the body of each function of abi.EnvImports, the runtime hooks
// that AssemblyScript compiles into every module.
var envTable = map[string]body{"abort": envAbort, "seed": envSeed, "trace": envTrace}

// abort(message, file, line, column): an exception that nothing caught.
func envAbort(s *State, mem api.Memory, stack []uint64) {
	s.ended = aborted
	s.abort = fmt.Sprintf("%s (%s:%d:%d)", s.scriptString(mem, stack[0]), s.scriptString(mem, stack[1]), uint32(stack[2]), uint32(stack[3]))
	panic(unwound)
}

// seed() -> f64: what Math.random starts from.
func envSeed(s *State, _ api.Memory, stack []uint64) {
	var b [8]byte
	s.fillRandom(b[:])
	stack[0] = api.EncodeF64(float64(binary.LittleEndian.Uint64(b[:]) >> 11))
}

// trace(message, n, a0 … a4): a line for debugging with up to five numbers.
func envTrace(s *State, mem api.Memory, stack []uint64) {
	text := s.scriptString(mem, stack[0])
	for _, v := range stack[2 : 2+min(5, uint32(stack[1]))] {
		text += fmt.Sprintf(" %v", api.DecodeF64(v))
	}
	s.log(abi.LevelDebug, text)
}

// maxScriptString bounds what is read of a string, in bytes.
const maxScriptString = 8 << 10

// scriptString is AssemblyScript's string at p: UTF-16, its length in bytes in
// the word before it. What is no string reads as "?": these calls end the guest
// anyway, or only log.
func (s *State) scriptString(mem api.Memory, p uint64) string {
	if uint32(p) == 0 {
		return ""
	}
	n, ok := mem.ReadUint32Le(uint32(p) - 4)
	if !ok {
		return "?"
	}
	b, ok := mem.Read(uint32(p), min(n, maxScriptString)&^1)
	if !ok {
		return "?"
	}
	s.work += uint64(len(b))
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[i*2:])
	}
	return string(utf16.Decode(units))
}
