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

// registerMeter serves the tick that compiled guests call: the only place where
// a guest that computes can be stopped, or makes room for others.
//
//	tick() -> fuel until the next tick
func registerMeter(ctx context.Context, rt wazero.Runtime, mod, tick string) error {
	b := rt.NewHostModuleBuilder(mod)
	b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, stack []uint64) {
		s := from(ctx)
		s.stopIfEnded()
		s.yield()
		stack[0] = uint64(s.quantum)
	}), nil, []api.ValueType{api.ValueTypeI32}).Export(tick)
	_, err := b.Instantiate(ctx)
	return err
}
