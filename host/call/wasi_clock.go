package call

import "github.com/tetratelabs/wazero/api"

// clock_res_get(clock, p): a microsecond, for every clock.
func wasiClockRes(s *State, mem api.Memory, stack []uint64) {
	s.putUint64(mem, "clock_res_get", stack[1], uint64(tickOfClock))
	stack[0] = wasiOK
}

// clock_time_get(clock, precision, p): what now() answers, for every clock.
func wasiClockTime(s *State, mem api.Memory, stack []uint64) {
	s.putUint64(mem, "clock_time_get", stack[2], uint64(s.clock.now()))
	stack[0] = wasiOK
}
