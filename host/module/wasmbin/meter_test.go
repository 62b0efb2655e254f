package wasmbin_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/jobrunner/runner/abi/wasmasm"
)

// Every way of running for ever comes to a tick.
func TestEndlessGuestsAreStopped(t *testing.T) {
	none := types()
	for _, tt := range []struct {
		name string
		add  func(m *wasmasm.Module) wasmasm.Func
	}{
		{"br", func(m *wasmasm.Module) wasmasm.Func {
			return m.Func(none, none, func(c *wasmasm.Code) { c.Loop(wasmasm.Empty).Br(0).End() })
		}},
		{"br_if in a loop with a parameter", func(m *wasmasm.Module) wasmasm.Func {
			return m.Func(none, none, func(c *wasmasm.Code) {
				c.I32Const(1).Loop(wasmasm.BlockType(m.Type(types(wasmasm.I32), none))).Op(wasmasm.Drop).I32Const(1).I32Const(1).BrIf(0).Op(wasmasm.Drop).End()
			})
		}},
		{"br_table", func(m *wasmasm.Module) wasmasm.Func {
			return m.Func(none, none, func(c *wasmasm.Code) { c.Loop(wasmasm.Empty).I32Const(7).BrTable(1, 0).End() })
		}},
		{"jump from an inner loop to an outer header", func(m *wasmasm.Module) wasmasm.Func {
			return m.Func(none, none, func(c *wasmasm.Code) { c.Loop(wasmasm.Empty).Loop(wasmasm.Empty).Br(1).End().End() })
		}},
		{"loop that calls", func(m *wasmasm.Module) wasmasm.Func {
			leaf := m.Func(none, none, func(c *wasmasm.Code) {})
			return m.Func(none, none, func(c *wasmasm.Code) { c.Loop(wasmasm.Empty).Call(leaf).Br(0).End() })
		}},
		{"recursion, which ends in the stack", func(m *wasmasm.Module) wasmasm.Func {
			return m.Func(none, none, func(c *wasmasm.Code) { c.Call(c.Self) })
		}},
		{"mutual recursion twice at each level", func(m *wasmasm.Module) wasmasm.Func {
			a, b := m.Declare(types(wasmasm.I32), none), m.Declare(types(wasmasm.I32), none)
			for f, other := range map[wasmasm.Func]wasmasm.Func{a: b, b: a} {
				m.Define(f, 1, func(c *wasmasm.Code) {
					c.LocalGet(0).If(wasmasm.Empty)
					c.LocalGet(0).I32Const(1).Op(wasmasm.I32Sub).Call(other).LocalGet(0).I32Const(1).Op(wasmasm.I32Sub).Call(other)
					c.End()
				})
			}
			return m.Func(none, none, func(c *wasmasm.Code) { c.I32Const(100).Call(a) })
		}},
		{"indirect recursion", func(m *wasmasm.Module) wasmasm.Func {
			m.Table(wasmasm.FuncRef, 1, 0)
			f := m.Func(none, none, func(c *wasmasm.Code) { c.I32Const(0).CallIndirect(none, none).I32Const(0).CallIndirect(none, none) })
			m.Elem(0, f)
			return f
		}},
		{"fills of memory", func(m *wasmasm.Module) wasmasm.Func {
			return m.Func(none, none, func(c *wasmasm.Code) {
				c.Loop(wasmasm.Empty).I32Const(0).I32Const(1).I32Const(65536).MemoryFill().Br(0).End()
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := sound(func(m *wasmasm.Module) { m.ExportFunc("f", tt.add(m)) })
			meter := &meterOf{quantum: 1000, most: 20}
			mod := instance(t, wazero.NewRuntimeConfig(), rewrite(t, build(t, m)).Bytes, meter)
			_, err := mod.ExportedFunction("f").Call(context.Background())
			if !errors.Is(err, stop{}) {
				t.Errorf("after %d ticks: %v", meter.ticks, err)
			}
			// The instance works on.
			meter.ticks = 0
			if _, err := mod.ExportedFunction("f").Call(context.Background()); !errors.Is(err, stop{}) {
				t.Errorf("the second time, after %d ticks: %v", meter.ticks, err)
			}
		})
	}
}

// ticksOf runs f once with no fuel at all, so that every tick on the way calls the host.
func ticksOf(t *testing.T, add func(m *wasmasm.Module) wasmasm.Func) int {
	t.Helper()
	m := sound(func(m *wasmasm.Module) { m.ExportFunc("f", add(m)) })
	meter := &meterOf{}
	mod := instance(t, wazero.NewRuntimeConfig(), rewrite(t, build(t, m)).Bytes, meter)
	if _, err := mod.ExportedFunction("f").Call(context.Background()); err != nil {
		t.Fatal(err)
	}
	return meter.ticks
}

func adds(c *wasmasm.Code, n int) {
	for range n {
		c.LocalGet(0).I32Const(1).Op(wasmasm.I32Add).LocalSet(0)
	}
}

// Straight code cannot hide work: a tick stands about every 256 instructions,
// on every way through, also on one that jumps over most of them.
func TestStraightCodeTicks(t *testing.T) {
	arg := func(m *wasmasm.Module, body func(c *wasmasm.Code)) wasmasm.Func {
		return m.Func(types(), types(), func(c *wasmasm.Code) { c.Local(wasmasm.I32); body(c) })
	}
	const n = 10_000 // of 4 instructions each
	t.Run("in a row", func(t *testing.T) {
		if got := ticksOf(t, func(m *wasmasm.Module) wasmasm.Func { return arg(m, func(c *wasmasm.Code) { adds(c, n) }) }); got < 4*n/300 {
			t.Errorf("%d ticks for %d instructions", got, 4*n)
		}
	})
	t.Run("jumping over the places where a count would end", func(t *testing.T) {
		const rounds = 100
		got := ticksOf(t, func(m *wasmasm.Module) wasmasm.Func {
			return arg(m, func(c *wasmasm.Code) {
				for range rounds {
					adds(c, 60)
					c.Block(wasmasm.Empty).I32Const(1).BrIf(0)
					adds(c, 60)
					c.End()
				}
			})
		})
		if got < rounds*240/300 {
			t.Errorf("%d ticks for %d instructions", got, rounds*240)
		}
	})
	t.Run("in the arms of ifs", func(t *testing.T) {
		const rounds = 100
		got := ticksOf(t, func(m *wasmasm.Module) wasmasm.Func {
			return arg(m, func(c *wasmasm.Code) {
				for range rounds {
					c.LocalGet(0).If(wasmasm.Empty)
					adds(c, 5)
					c.Else()
					adds(c, 60)
					c.End()
					c.I32Const(0).LocalSet(0)
				}
			})
		})
		if got < rounds*240/300 {
			t.Errorf("%d ticks for %d instructions", got, rounds*240)
		}
	})
	t.Run("in a leaf that is called", func(t *testing.T) {
		const calls = 50
		got := ticksOf(t, func(m *wasmasm.Module) wasmasm.Func {
			leaf := arg(m, func(c *wasmasm.Code) { adds(c, 20) })
			return arg(m, func(c *wasmasm.Code) {
				for range calls {
					c.Call(leaf)
				}
			})
		})
		if got < calls {
			t.Errorf("%d ticks for %d calls", got, calls)
		}
	})
}

// A tick costs what may have run since the last one, and a range its length.
func TestTicksCostWhatRan(t *testing.T) {
	charged := func(quantum uint64, body func(c *wasmasm.Code)) int {
		m := sound(func(m *wasmasm.Module) {
			m.Table(wasmasm.FuncRef, 100, 200)
			m.ExportFunc("f", m.Func(types(), types(), body))
		})
		meter := &meterOf{quantum: quantum}
		mod := instance(t, wazero.NewRuntimeConfig(), rewrite(t, build(t, m)).Bytes, meter)
		if _, err := mod.ExportedFunction("f").Call(context.Background()); err != nil {
			t.Fatal(err)
		}
		return meter.ticks
	}
	// With 1000 units a tick, the first comes at once and a second only if
	// what follows costs more than that.
	for _, tt := range []struct {
		name string
		want int
		body func(c *wasmasm.Code)
	}{
		{"two fills of 64 KiB", 1, func(c *wasmasm.Code) {
			for range 2 {
				c.I32Const(0).I32Const(0).I32Const(65536).MemoryFill()
			}
		}},
		{"ten copies of 64 KiB", 3, func(c *wasmasm.Code) {
			for range 10 {
				c.I32Const(0).I32Const(0).I32Const(65536).MemoryCopy()
			}
		}},
		{"ten fills of nothing", 1, func(c *wasmasm.Code) {
			for range 10 {
				c.I32Const(0).I32Const(0).I32Const(0).MemoryFill()
			}
		}},
		{"forty growths of memory", 3, func(c *wasmasm.Code) {
			for range 40 {
				c.I32Const(0).MemoryGrow().Op(wasmasm.Drop)
			}
		}},
		{"forty growths of a table", 3, func(c *wasmasm.Code) {
			for range 40 {
				c.RefNull(wasmasm.FuncRef).I32Const(0).TableGrow(0).Op(wasmasm.Drop)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := charged(1000, tt.body); got != tt.want {
				t.Errorf("%d ticks, want %d", got, tt.want)
			}
		})
	}
}
