package call

import (
	"encoding/binary"

	"github.com/tetratelabs/wazero/api"
)

// args_sizes_get(argc, size): there are no arguments.
func wasiNoArgs(s *State, mem api.Memory, stack []uint64) {
	s.putUint32(mem, "args_sizes_get", stack[0], 0)
	s.putUint32(mem, "args_sizes_get", stack[1], 0)
	stack[0] = wasiOK
}

// environ_sizes_get(count, size): how many variables were granted, and the
// bytes they take with a zero after each.
func wasiEnvironSizes(s *State, mem api.Memory, stack []uint64) {
	size := 0
	env := s.caps.Environ()
	for _, v := range env {
		size += len(v) + 1
	}
	s.putUint32(mem, "environ_sizes_get", stack[0], uint32(len(env)))
	s.putUint32(mem, "environ_sizes_get", stack[1], uint32(size))
	stack[0] = wasiOK
}

// environ_get(pointers, text): the variables.
//
//	text      A = 1 \0 B = 2 \0
//	pointers  text, text+4
func wasiEnviron(s *State, mem api.Memory, stack []uint64) {
	pointers, text := stack[0], stack[1]
	for _, v := range s.caps.Environ() {
		s.putUint32(mem, "environ_get", pointers, uint32(text))
		b := s.view(mem, "environ_get", text, uint64(len(v)+1))
		copy(b, v)
		b[len(v)] = 0
		pointers += 4
		text += uint64(len(v) + 1)
	}
	stack[0] = wasiOK
}

// putUint32 and putUint64 write a number at p.
func (s *State) putUint32(mem api.Memory, fn string, p uint64, v uint32) {
	binary.LittleEndian.PutUint32(s.view(mem, fn, p, 4), v)
}

func (s *State) putUint64(mem api.Memory, fn string, p uint64, v uint64) {
	binary.LittleEndian.PutUint64(s.view(mem, fn, p, 8), v)
}
