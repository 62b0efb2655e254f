package abitest

import (
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// violates is a case whose body breaks the contract; it need not end properly.
func violates(name, says string, body func(f *fixture, c *wasmasm.Code)) guestCase {
	return guestCase{
		name: name,
		body: func(f *fixture, c *wasmasm.Code) {
			body(f, c)
			f.done(c)
		},
		want: want{kind: abi.Crashed, code: abi.CodeABIViolation, fail: abi.FailTerminal, says: says},
	}
}

// boundsCases are about the pointers, lengths and bytes that a guest passes.
var boundsCases = []guestCase{
	violates("a pointer outside memory", abi.FuncOutput, func(f *fixture, c *wasmasm.Code) {
		c.I32Const(wild).I32Const(4).Call(f.fns[abi.FuncOutput]).Op(wasmasm.Drop)
	}),
	violates("a length that reaches outside memory", abi.FuncOutput, func(f *fixture, c *wasmasm.Code) {
		c.I32Const((pages + 1) << 16).I32Const(1).Call(f.fns[abi.FuncOutput]).Op(wasmasm.Drop)
	}),
	violates("a length of -1", abi.FuncStepEnd, func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncStepBegin, "s", 0)
		c.I32Const(0).I32Const(-1).Call(f.fns[abi.FuncStepEnd]).Op(wasmasm.Drop)
	}),
	violates("a pointer that wraps around", abi.FuncLog, func(f *fixture, c *wasmasm.Code) {
		c.I32Const(1).I32Const(-4).I32Const(8).Call(f.fns[abi.FuncLog])
	}),
	violates("a result read to outside memory", abi.FuncResultRead, func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncInput)
		f.run(c, abi.FuncResultRead, wild, 4, 0)
	}),
	violates("randomness to outside memory", abi.FuncRandom, func(f *fixture, c *wasmasm.Code) {
		f.do(c, abi.FuncRandom, wild, 4)
	}),
	{
		name: "a length of 0 makes the pointer irrelevant",
		body: func(f *fixture, c *wasmasm.Code) {
			c.I32Const(1).I32Const(-1).I32Const(0).Call(f.fns[abi.FuncLog])
			f.run(c, abi.FuncInput)
			f.tell(c, abi.FuncResultRead, -1, 0, 0)
			f.do(c, abi.FuncRandom, -1, 0)
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"", "0"}},
	},
	violates("an empty name", "empty", func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncStepBegin, -1, 0, 0) }),
	violates("a name of 256 bytes", "255", func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncStepBegin, strings.Repeat("x", 256), 0)
	}),
	violates("a name that is not UTF-8", "UTF-8", func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncSleep, "a\xff", int64(1)) }),
	violates("a name with a NUL", "control", func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncStepBegin, "a\x00b", 0) }),
	violates("a topic that is not UTF-8", "UTF-8", func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncWaitEvent, "a", "\xff", "", int64(1))
	}),
	{
		name: "a name of 255 bytes",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncStepBegin, strings.Repeat("é", 127)+"x", 0)
			f.tell(c, abi.FuncStepEnd, "null")
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"0", "0"}},
	},
	violates("an output that is no JSON", "JSON", func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncOutput, "{") }),
	violates("an empty output", "JSON", func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncOutput, "") }),
	violates("an output with the same key twice", "duplicate", func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncOutput, `{"a":1,"a":2}`)
	}),
	violates("an output that is not UTF-8", "UTF-8", func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncOutput, "\"\xff\"") }),
	violates("an output that nests too deep", "deeper", func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncOutput, strings.Repeat("[", abi.MaxJSONDepth+1)+strings.Repeat("]", abi.MaxJSONDepth+1))
	}),
	violates("a step's output that is no JSON", "JSON", func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncStepBegin, "s", 0)
		f.run(c, abi.FuncStepEnd, "nope")
	}),
	violates("a request that is no JSON", "JSON", func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncEnqueue, `{"job":`) }),
	{
		name: "an output larger than allowed is refused, and the one before stands",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncOutput, `"small"`)
			c.I32Const(32).MemoryGrow().Op(wasmasm.Drop)
			big(c)
			c.I32Const(bigAt).I32Const(abi.MaxOutput + 1).Call(f.fns[abi.FuncOutput]).Call(f.say)
			f.tell(c, abi.FuncResultLen)
			c.I32Const(0)
		},
		want: want{kind: abi.Done, output: `"small"`},
		check: func(t *testing.T, m *Memory, _ abi.Outcome) {
			if ls := m.Lines(); len(ls) != 2 || ls[0].Text != "-2" || ls[1].Text == "0" {
				t.Errorf("%v: want -2, with a failure as the last result", ls)
			}
		},
	}, {
		name: "a step's output larger than allowed leaves the step open",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncStepBegin, "s", 0)
			c.I32Const(32).MemoryGrow().Op(wasmasm.Drop)
			big(c)
			c.I32Const(bigAt).I32Const(abi.MaxOutput + 1).Call(f.fns[abi.FuncStepEnd]).Call(f.say)
			f.tell(c, abi.FuncStepEnd, "null")
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"-2", "0"}},
	}, {
		name: "an output of exactly the largest size",
		body: func(f *fixture, c *wasmasm.Code) {
			c.I32Const(32).MemoryGrow().Op(wasmasm.Drop)
			big(c)
			c.I32Const(bigAt).I32Const(abi.MaxOutput).Call(f.fns[abi.FuncOutput])
		},
		want: want{kind: abi.Done},
		check: func(t *testing.T, _ *Memory, out abi.Outcome) {
			if len(out.Output) != abi.MaxOutput {
				t.Errorf("%d bytes", len(out.Output))
			}
		},
	},
}

// bigAt is where big writes a JSON number of abi.MaxOutput+1 bytes. A body that
// uses it has grown memory before.
const bigAt = (pages + 1) << 16

func big(c *wasmasm.Code) { c.I32Const(bigAt).I32Const('1').I32Const(abi.MaxOutput + 1).MemoryFill() }
