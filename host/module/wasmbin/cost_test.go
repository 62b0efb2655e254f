package wasmbin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/module/wasmbin"
)

// Small modules that would keep a compiler busy for minutes, or take it
// gigabytes, are refused; the same shapes at a tenth of the size are not.
func TestWhatIsTooCostlyToCompile(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		size       int
		add        func(m *wasmasm.Module, n int)
	}{
		{"locals needed in all of nested loops", "takes too long to compile (800 locals, 800 loops", 800, func(m *wasmasm.Module, n int) {
			m.Func(nil, nil, func(c *wasmasm.Code) {
				for range n {
					c.Local(wasmasm.I32)
				}
				for l := range uint32(n) {
					c.Loop(wasmasm.Empty).LocalGet(l).I32Const(1).Op(wasmasm.I32Add).LocalSet(l)
				}
				for l := range uint32(n) {
					c.LocalGet(l).BrIf(0).End()
				}
				for l := range uint32(n) {
					c.LocalGet(l).Op(wasmasm.Drop)
				}
			})
		}},
		{"loops in a row", "takes too long to compile (0 locals, 20000 loops", 20_000, func(m *wasmasm.Module, n int) {
			m.Func(nil, nil, func(c *wasmasm.Code) {
				for range n {
					c.Loop(wasmasm.Empty).End()
				}
			})
		}},
		{"blocks in a row", "takes too long to compile (0 locals, 0 loops, 40000 blocks", 40_000, func(m *wasmasm.Module, n int) {
			m.Func(nil, nil, func(c *wasmasm.Code) {
				for range n {
					c.Block(wasmasm.Empty).I32Const(0).BrIf(0).End()
				}
			})
		}},
		{"mutable globals and calls", "calls with 2001 mutable globals take too much memory", 2000, func(m *wasmasm.Module, n int) {
			for range n {
				m.GlobalI32(true, 0)
			}
			m.Func(nil, nil, func(c *wasmasm.Code) {
				for range n {
					c.Call(c.Self)
				}
			})
		}},
		{"values that wait on the stack", "too many values are needed for too long", 100_000, func(m *wasmasm.Module, n int) {
			m.Func(nil, types(wasmasm.I32), func(c *wasmasm.Code) {
				l := c.Local(wasmasm.I32)
				for range n {
					c.LocalGet(l).I32Const(1).Op(wasmasm.I32Add).LocalTee(l)
				}
				for range n - 1 {
					c.Op(wasmasm.I32Add)
				}
			})
		}},
		{"locals that outlive many blocks", "too many values are needed for too long", 5_000, func(m *wasmasm.Module, n int) {
			m.Func(nil, nil, func(c *wasmasm.Code) {
				for range n {
					c.I32Const(1).LocalSet(c.Local(wasmasm.I32))
				}
				for range n {
					c.Block(wasmasm.Empty).I32Const(0).BrIf(0).End()
				}
				for l := range uint32(n) {
					c.LocalGet(l).Op(wasmasm.Drop)
				}
			})
		}},
		{"locals that rounds of a loop hand on around inner loops", "takes too long to compile (800 locals, 801 loops", 800, func(m *wasmasm.Module, n int) {
			m.Func(nil, nil, func(c *wasmasm.Code) {
				c.Loop(wasmasm.Empty)
				for range n {
					c.Loop(wasmasm.Empty).End()
				}
				c.I32Const(0).If(wasmasm.Empty) // assigned first, yet not always
				for range n {
					c.I32Const(1).LocalSet(c.Local(wasmasm.I32))
				}
				c.End().I32Const(0).BrIf(0).End()
				for l := range uint32(n) {
					c.LocalGet(l).Op(wasmasm.Drop)
				}
			})
		}},
		{"labels", "br_table with 200000 labels", 200_000, func(m *wasmasm.Module, n int) {
			m.Func(nil, nil, func(c *wasmasm.Code) { c.I32Const(0).BrTable(make([]uint32, n)...) })
		}},
		{"many functions", "all functions together take too long to compile", 100, func(m *wasmasm.Module, n int) {
			for range n {
				m.Func(nil, nil, func(c *wasmasm.Code) {
					for range 2000 {
						c.Loop(wasmasm.Empty).End()
					}
				})
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := wasmbin.Scan(build(t, sound(func(m *wasmasm.Module) { tt.add(m, tt.size) })))
			if e := (*wasmbin.Error)(nil); !errors.As(err, &e) || e.Kind != wasmbin.TooComplex || !strings.Contains(e.Detail, tt.want) {
				t.Errorf("got %v", err)
			}
			if _, err := wasmbin.Scan(build(t, sound(func(m *wasmasm.Module) { tt.add(m, tt.size/10) }))); err != nil {
				t.Errorf("at a tenth of the size: %v", err)
			}
		})
	}
}

// A local that is used within one block costs nothing elsewhere: code without
// optimisation has thousands of them.
func TestManyShortLivedLocalsAreFine(t *testing.T) {
	_, err := wasmbin.Scan(build(t, sound(inFunc(func(c *wasmasm.Code) {
		for range 20 {
			c.Loop(wasmasm.Empty)
			for range 500 {
				l := c.Local(wasmasm.I32)
				c.Block(wasmasm.Empty).I32Const(1).LocalSet(l).LocalGet(l).BrIf(0).End()
			}
			c.End()
		}
	}))))
	if err != nil {
		t.Error(err)
	}
}
