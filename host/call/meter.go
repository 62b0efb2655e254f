package call

import (
	"context"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Quantum is the default number of loop iterations (or as much other work)
// between two ticks of a guest. 30,000 are 50 to 300 µs: the time for which a
// garbage collection or another goroutine waits for a busy guest. Ten times as
// many are felt by every other attempt; ten times fewer cost a tenth of the
// guest's speed.
const Quantum = 30_000

// A guest burns no fuel while the host works for it: a loop around a call that
// fills ten megabytes would come to its next tick after minutes. So that work is
// counted as well, in bytes that host functions were given to read or write;
// callWork is what a call costs besides. After workQuantum, which is about as
// long as a quantum of fuel, the call is a tick.
const (
	workQuantum = 64 << 10
	callWork    = 512
)

// tick stops a guest whose context ended, and lets others run.
func (s *State) tick() {
	s.stopIfEnded()
	s.yield()
	s.work = 0
}

// worked ends a host function that did not unwind the guest.
func (s *State) worked() {
	if s.work += callWork; s.work >= workQuantum {
		s.tick()
	}
}

// registerMeter serves the tick that compiled guests call: where a guest
// that computes can be stopped, or makes room for others.
//
//	tick() -> fuel until the next tick
func registerMeter(ctx context.Context, rt wazero.Runtime, mod, tick string) error {
	b := rt.NewHostModuleBuilder(mod)
	b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, stack []uint64) {
		s := from(ctx)
		s.ticks++
		s.tick()
		stack[0] = uint64(s.quantum)
	}), nil, []api.ValueType{api.ValueTypeI32}).Export(tick)
	_, err := b.Instantiate(ctx)
	return err
}
