package call

import "github.com/tetratelabs/wazero/api"

// proc_exit(code): ends the call into the guest. The instance can be used
// again, unlike after wazero's own proc_exit.
func wasiExit(s *State, _ api.Memory, stack []uint64) {
	s.ended, s.exitCode = exited, uint32(stack[0])
	panic(unwound)
}

// random_get(p, n): what random does.
func wasiRandom(s *State, mem api.Memory, stack []uint64) {
	s.fillRandom(s.view(mem, "random_get", stack[0], stack[1]))
	stack[0] = wasiOK
}
