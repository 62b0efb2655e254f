package abitest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// journalCases are about what a guest tells people.
var journalCases = []guestCase{
	{
		name: "lines have their level, and one that does not exist is an error",
		body: func(f *fixture, c *wasmasm.Code) {
			for level := range 5 {
				f.do(c, abi.FuncLog, level, "line")
			}
			f.do(c, abi.FuncLog, -1, "line")
			f.done(c)
		},
		want: want{kind: abi.Done},
		check: func(t *testing.T, m *Memory, _ abi.Outcome) {
			want := []abi.Level{0, 1, 2, 3, 3, 3}
			for i, l := range m.Lines() {
				if i >= len(want) || l.Level != want[i] || l.Text != "line" {
					t.Errorf("line %d: %+v", i, l)
				}
			}
		},
	}, {
		name: "what no terminal should be given is replaced",
		body: func(f *fixture, c *wasmasm.Code) {
			f.do(c, abi.FuncLog, 1, "\x1b[31mred\xff\x00 ok\n\t.")
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"\ufffd[31mred\ufffd\ufffd ok\n\t."}},
	}, {
		name: "a long line is cut",
		body: func(f *fixture, c *wasmasm.Code) {
			c.I32Const(atBuffer).I32Const('x').I32Const(abi.MaxLogLine + 1).MemoryFill()
			c.I32Const(1).I32Const(atBuffer).I32Const(abi.MaxLogLine + 1).Call(f.fns[abi.FuncLog])
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{strings.Repeat("x", abi.MaxLogLine)}},
	}, {
		name: "progress stays between nothing and everything",
		body: func(f *fixture, c *wasmasm.Code) {
			f.do(c, abi.FuncProgress, -5, "a\nb")
			f.do(c, abi.FuncProgress, 500, "")
			f.do(c, abi.FuncProgress, 1001, strings.Repeat("n", abi.MaxProgressNote+1))
			f.done(c)
		},
		want:  want{kind: abi.Done},
		check: transcript("progress 0 a b", "progress 500 ", "progress 1000 "+strings.Repeat("n", abi.MaxProgressNote)),
	}, {
		name: "a flood on stdout is counted and dropped, not an error",
		body: func(f *fixture, c *wasmasm.Code) {
			n := c.Local(wasmasm.I32)
			c.I32Const(atBuffer).I32Const('x').I32Const(1024).MemoryFill()
			// One vector: 1024 bytes at atBuffer.
			c.I32Const(16).I32Const(atBuffer).Mem(wasmasm.I32Store, 0)
			c.I32Const(20).I32Const(1024).Mem(wasmasm.I32Store, 0)
			c.Loop(wasmasm.Empty)
			f.run(c, "fd_write", 1, 16, 1, 24)
			c.LocalGet(n).I32Const(1).Op(wasmasm.I32Add).LocalTee(n).I32Const(1000).Op(wasmasm.I32LtS).BrIf(0)
			c.End()
			f.tell(c, "fd_write", 7, 16, 1, 24)
			f.done(c)
		},
		want: want{kind: abi.Done},
		check: func(t *testing.T, _ *Memory, out abi.Outcome) {
			if out.Usage.StdioBytes != 1_024_000 || out.Usage.StdioDropped != 1_024_000-abi.MaxStdio {
				t.Errorf("%+v", out.Usage)
			}
		},
	},
}

// clockCases are about time and chance, which are the run's between steps.
var clockCases = []guestCase{
	{
		name: "between steps the clock is the run's",
		body: func(f *fixture, c *wasmasm.Code) {
			secondsSince(f, c)
			f.run(c, abi.FuncStepBegin, "s", 0)
			f.run(c, abi.FuncStepEnd, "1")
			secondsSince(f, c)
			f.done(c)
		},
		calls: func(m *Memory, _ func()) abi.Calls { return &later{Memory: m, by: time.Hour} },
		want:  want{kind: abi.Done, lines: []string{"0", "3600"}},
	}, {
		name: "it never runs backwards",
		body: func(f *fixture, c *wasmasm.Code) {
			t := c.Local(wasmasm.I64)
			f.do(c, abi.FuncNow).LocalSet(t)
			f.run(c, abi.FuncStepBegin, "s", 0)
			f.do(c, abi.FuncNow).LocalGet(t).Op(wasmasm.I64GeS).Call(f.say)
			f.run(c, abi.FuncStepEnd, "1")
			f.do(c, abi.FuncNow).LocalGet(t).Op(wasmasm.I64GeS).Call(f.say)
			f.done(c)
		},
		calls: func(m *Memory, _ func()) abi.Calls { return &later{Memory: m, by: -time.Hour} },
		want:  want{kind: abi.Done, lines: []string{"1", "1"}},
	}, {
		name: "between steps chance is the run's, inside it is real",
		body: func(f *fixture, c *wasmasm.Code) {
			number := func() {
				f.do(c, abi.FuncRandom, atBuffer, 4)
				c.I32Const(atBuffer).Mem(wasmasm.I32Load, 0).Call(f.say)
			}
			number()
			f.run(c, abi.FuncStepBegin, "s", 0)
			number()
			f.run(c, abi.FuncStepEnd, "1")
			number()
			f.done(c)
		},
		want: want{kind: abi.Done},
		check: func(t *testing.T, m *Memory, _ abi.Outcome) {
			ls := m.Lines()
			if len(ls) != 3 || ls[0].Text == ls[1].Text || ls[0].Text == ls[2].Text {
				t.Errorf("%v", ls)
			}
		},
	},
}

// secondsSince logs how many seconds after the start of Memory the clock is.
func secondsSince(f *fixture, c *wasmasm.Code) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	f.do(c, abi.FuncNow).I64Const(start).Op(wasmasm.I64Sub).I64Const(int64(time.Second)).Op(wasmasm.I64DivS, wasmasm.I32WrapI64).Call(f.say)
}

// later is a Memory whose steps are recorded at another time.
type later struct {
	*Memory
	by time.Duration
}

func (l *later) StepEnd(ctx context.Context, output []byte) (time.Time, error) {
	at, err := l.Memory.StepEnd(ctx, output)
	return at.Add(l.by), err
}
