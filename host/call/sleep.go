package call

import (
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// sleep(name, n, ms) -> 0 once ms milliseconds have passed since the run first
// asked; until then the guest is unwound and the run suspended.
//
// Answers abi.CodeOutsideStepOnly inside a step, abi.CodeLimit beyond
// abi.MaxSleep.
func sleep(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncSleep)
	name := s.name(mem, abi.FuncSleep, stack[0], stack[1])
	d, err := wire.Duration(int64(stack[2]))
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	stack[0] = s.slept(func() (time.Time, error) { return s.calls.Sleep(s.Context, name, d) })
}

// sleep_until(name, n, unix_ms) -> 0 once that instant is reached; until then
// the guest is unwound and the run suspended.
//
// Answers abi.CodeOutsideStepOnly inside a step, abi.CodeLimit for more than
// abi.MaxSleep after the run's clock.
func sleepUntil(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncSleepUntil)
	name := s.name(mem, abi.FuncSleepUntil, stack[0], stack[1])
	t, err := wire.Until(int64(stack[2]), time.Unix(0, s.clock.virtual))
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	stack[0] = s.slept(func() (time.Time, error) { return s.calls.SleepUntil(s.Context, name, t) })
}

// slept is the answer of a sleep, which ask asks for.
func (s *State) slept(ask func() (time.Time, error)) uint64 {
	if s.inStep {
		return codeOutsideStepOnly
	}
	s.leaveBriefly()
	at, err := ask()
	s.enter()
	if err != nil {
		return s.refuse(err)
	}
	s.clock.observe(at)
	return 0
}
