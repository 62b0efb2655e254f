package abitest

import (
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

func trap(name string, body func(f *fixture, c *wasmasm.Code)) guestCase {
	return guestCase{name: name, body: body, want: want{kind: abi.Crashed, code: abi.CodeGuestTrap}}
}

// wild is a pointer that no fixture's memory reaches.
const wild = 0x7fff0000

// trapCases are the ways in which a guest is torn down by the machine. A trap
// may come from the data, so it is tried again; what a retry cannot mend is not.
var trapCases = []guestCase{
	trap("unreachable", func(_ *fixture, c *wasmasm.Code) { c.Op(wasmasm.Unreachable) }),
	trap("load outside memory", func(_ *fixture, c *wasmasm.Code) { c.I32Const(wild).Mem(wasmasm.I32Load, 0) }),
	trap("division by zero", func(_ *fixture, c *wasmasm.Code) { c.I32Const(1).I32Const(0).Op(wasmasm.I32DivU) }),
	trap("division that overflows", func(_ *fixture, c *wasmasm.Code) { c.I32Const(-1 << 31).I32Const(-1).Op(wasmasm.I32DivS) }),
	trap("conversion of not a number", func(_ *fixture, c *wasmasm.Code) {
		c.F64Const(0).F64Const(0).Op(wasmasm.F64Div).Op(wasmasm.I32TruncF64S)
	}),
	trap("indirect call of nothing", func(f *fixture, c *wasmasm.Code) {
		f.m.Table(wasmasm.FuncRef, 4, 4)
		c.I32Const(1).CallIndirect(nil, wasmasm.Types(wasmasm.I32))
	}),
	trap("indirect call outside the table", func(f *fixture, c *wasmasm.Code) {
		f.m.Table(wasmasm.FuncRef, 4, 4)
		c.I32Const(99).CallIndirect(nil, wasmasm.Types(wasmasm.I32))
	}),
	trap("indirect call with another type", func(f *fixture, c *wasmasm.Code) {
		f.m.Table(wasmasm.FuncRef, 4, 4)
		f.m.Elem(0, f.fns[abi.FuncNow])
		c.I32Const(0).CallIndirect(nil, wasmasm.Types(wasmasm.I32))
	}),
	trap("abort of AssemblyScript", func(f *fixture, c *wasmasm.Code) { f.do(c, "abort", 0, 0, 12, 5).I32Const(0) }),
	{
		name: "stack overflow",
		body: func(_ *fixture, c *wasmasm.Code) { c.Call(c.Self) },
		want: want{kind: abi.Crashed, code: abi.CodeGuestStack, fail: abi.FailTerminal},
	}, {
		name: "trap after memory ran out",
		body: func(_ *fixture, c *wasmasm.Code) {
			c.Loop(wasmasm.Empty).I32Const(256).MemoryGrow().I32Const(-1).Op(wasmasm.I32Ne).BrIf(0).End()
			c.Op(wasmasm.Unreachable)
		},
		want: want{kind: abi.Crashed, code: abi.CodeGuestMemory, fail: abi.FailTerminal},
	}, {
		name: "memory that ran out, handled",
		body: func(f *fixture, c *wasmasm.Code) {
			c.Loop(wasmasm.Empty).I32Const(256).MemoryGrow().I32Const(-1).Op(wasmasm.I32Ne).BrIf(0).End()
			c.I32Const(65536).MemoryGrow().Call(f.say)
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"-1"}},
		check: func(t *testing.T, _ *Memory, out abi.Outcome) {
			if out.Usage.MemoryBytes < 32<<20 || out.Usage.MemoryBytes > 1<<30 {
				t.Errorf("it got %d bytes; the kit needs a limit of 32 MiB to 1 GiB", out.Usage.MemoryBytes)
			}
		},
	}, {
		name: "a trap inside a step is a trap",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncStepBegin, "s", 0)
			c.Op(wasmasm.Unreachable)
		},
		want: want{kind: abi.Crashed, code: abi.CodeGuestTrap},
	}, {
		name: "a trap after fail is a trap",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncFail, 1, `{"message":"not this"}`)
			c.Op(wasmasm.Unreachable)
		},
		want: want{kind: abi.Crashed, code: abi.CodeGuestTrap},
	},
}
