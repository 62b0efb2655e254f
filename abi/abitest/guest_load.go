package abitest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// plain assembles a module with one handler; change may break it.
func plain(tb testing.TB, change func(p *plainModule)) []byte {
	tb.Helper()
	i32 := wasmasm.Types(wasmasm.I32)
	p := &plainModule{
		m: wasmasm.New(), memory: true, describe: `{"abi":1,"sdk":"abitest","handlers":[{"name":"case"}]}`,
		runParams: i32, runResults: i32, describeAnswer: 0,
	}
	p.output = p.m.ImportFunc(abi.ImportModule, abi.FuncOutput, wasmasm.Types(wasmasm.I32, wasmasm.I32), i32)
	if change != nil {
		change(p)
	}
	p.m.Memory(1, 0)
	if p.memory {
		p.m.ExportMemory(abi.ExportMemory, 0)
	}
	p.m.Data(16, []byte(p.describe))
	if !p.noDescribe {
		p.m.ExportFunc(abi.ExportDescribe, p.m.Func(nil, i32, func(c *wasmasm.Code) {
			c.I32Const(16).I32Const(int32(len(p.describe))).Call(p.output).Op(wasmasm.Drop)
			c.I32Const(p.describeAnswer)
		}))
	}
	if !p.noRun {
		p.m.ExportFunc(abi.ExportRun, p.m.Func(p.runParams, p.runResults, func(c *wasmasm.Code) {
			c.I32Const(16).I32Const(int32(len(p.describe))).Call(p.output)
			if len(p.runResults) == 0 {
				c.Op(wasmasm.Drop)
			}
		}))
	}
	wasm, err := p.m.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return wasm
}

type plainModule struct {
	m                 *wasmasm.Module
	output            wasmasm.Func
	memory            bool
	noDescribe, noRun bool
	describe          string
	describeAnswer    int32
	runParams         []wasmasm.ValType
	runResults        []wasmasm.ValType
}

// exports defines a function without parameters and exports it.
func (p *plainModule) exports(name string, results []wasmasm.ValType, body func(c *wasmasm.Code)) {
	p.m.ExportFunc(name, p.m.Func(nil, results, body))
}

// testLoad: what a host refuses before anything runs, in words that name it,
// and what it must not refuse.
func testLoad(t *testing.T, load Load) {
	for _, c := range []struct {
		name string
		wasm func(tb testing.TB) []byte
		says string // part of the error; "" for a module that must load
	}{
		{"a plain module", func(tb testing.TB) []byte { return plain(tb, nil) }, ""},
		{"functions of WASI that nobody serves", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) {
				p.m.ImportFunc(abi.WASIModule, "fd_prestat_get", wasmasm.Types(abi.I32, abi.I32), wasmasm.Types(abi.I32))
			})
		}, ""},
		{"a description with more in it than the host knows", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) {
				p.describe = `{"abi":1,"sdk":"x","handlers":[{"name":"case","schema":{"type":"object"},"color":"red"}],"more":1}`
			})
		}, ""},
		{"nothing", func(testing.TB) []byte { return nil }, " "},
		{"text", func(testing.TB) []byte { return []byte("#!/bin/sh\necho hello\n") }, " "},
		{"half a module", func(tb testing.TB) []byte { b := plain(tb, nil); return b[:len(b)/2] }, " "},
		{"no runner_run", func(tb testing.TB) []byte { return plain(tb, func(p *plainModule) { p.noRun = true }) }, abi.ExportRun},
		{"no runner_describe", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.noDescribe = true })
		}, abi.ExportDescribe},
		{"no memory", func(tb testing.TB) []byte { return plain(tb, func(p *plainModule) { p.memory = false }) }, abi.ExportMemory},
		{"runner_run with another signature", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.runParams = wasmasm.Types(wasmasm.I64) })
		}, "(i32) -> i32"},
		{"runner_run without an answer", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.runResults = nil })
		}, "(i32) -> i32"},
		{"an import that runner_v1 does not have", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.m.ImportFunc(abi.ImportModule, "teleport", nil, nil) })
		}, "teleport"},
		{"an import with another signature", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) {
				p.m.ImportFunc(abi.ImportModule, abi.FuncNow, nil, wasmasm.Types(wasmasm.I32))
			})
		}, abi.FuncNow},
		{"an import from elsewhere", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.m.ImportFunc("somewhere_else", "f", nil, nil) })
		}, "somewhere_else"},
		{"an imported memory", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.m.ImportMemory("env", "memory", 1) })
		}, "memory"},
		{"a description that is no JSON", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.describe = `{"abi":1` })
		}, "JSON"},
		{"a description without handlers", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.describe = `{"abi":1,"sdk":"x","handlers":[]}` })
		}, "handlers"},
		{"two handlers of one name", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.describe = `{"abi":1,"sdk":"x","handlers":[{"name":"a"},{"name":"a"}]}` })
		}, `"a"`},
		{"another version of the ABI", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.describe = `{"abi":2,"sdk":"x","handlers":[{"name":"a"}]}` })
		}, "ABI 2"},
		{"runner_describe that answers 1", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) { p.describeAnswer = 1 })
		}, abi.ExportDescribe},
		{"_initialize that traps", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) {
				p.exports(abi.ExportInitialize, nil, func(c *wasmasm.Code) { c.Op(wasmasm.Unreachable) })
			})
		}, abi.ExportInitialize},
		{"a warm-up that does more than warm up", func(tb testing.TB) []byte {
			return plain(tb, func(p *plainModule) {
				begin := p.m.ImportFunc(abi.ImportModule, abi.FuncStepBegin, wasmasm.Types(abi.I32, abi.I32, abi.I32), wasmasm.Types(abi.I32))
				p.exports(abi.ExportWarm, wasmasm.Types(abi.I32), func(c *wasmasm.Code) {
					c.I32Const(16).I32Const(1).I32Const(0).Call(begin)
				})
			})
		}, abi.FuncStepBegin},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := load(t, c.wasm(t))
			switch {
			case c.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.says == "":
				m := NewMemory(Config{})
				if out := g.Run(context.Background(), m.Attempt(handlerCase, []byte("null")), m); out.Kind != abi.Done {
					t.Errorf("ended %v %+v", out.Kind, out.Failure)
				}
			case err == nil:
				t.Errorf("loaded, want an error with %q", c.says)
			case !strings.Contains(err.Error(), c.says):
				t.Errorf("refused with %q, which does not say %q", err, c.says)
			default:
				var e *abi.Error
				if !errors.As(err, &e) || e.Code == "" {
					t.Errorf("%T %v is no *abi.Error with a code", err, err)
				}
			}
		})
	}
	t.Run("warm-up and start become part of every attempt's memory", func(t *testing.T) {
		wasm := plain(t, func(p *plainModule) {
			p.describe = `{"abi":1,"sdk":"x","handlers":[{"name":"case"}]}0`
			at := int32(16 + len(p.describe) - 1)
			bump := func(by int32) func(c *wasmasm.Code) {
				return func(c *wasmasm.Code) {
					c.I32Const(at).I32Const(at).Mem(wasmasm.I32Load8U, 0).I32Const(by).Op(wasmasm.I32Add).Mem(wasmasm.I32Store8, 0)
				}
			}
			p.exports(abi.ExportInitialize, nil, bump(1))
			p.exports(abi.ExportWarm, wasmasm.Types(abi.I32), func(c *wasmasm.Code) { bump(2)(c); c.I32Const(0) })
			p.m.Start(p.m.Func(nil, nil, bump(4)))
			// Describes without the digit, answers with nothing but it.
			p.noDescribe, p.noRun = true, true
			p.exports(abi.ExportDescribe, wasmasm.Types(abi.I32), func(c *wasmasm.Code) {
				c.I32Const(16).I32Const(at - 16).Call(p.output)
			})
			p.m.ExportFunc(abi.ExportRun, p.m.Func(wasmasm.Types(abi.I32), wasmasm.Types(abi.I32), func(c *wasmasm.Code) {
				bump(0)(c)
				c.I32Const(at).I32Const(1).Call(p.output)
				bump(1)(c)
			}))
		})
		g, err := load(t, wasm)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			m := NewMemory(Config{})
			if out := g.Run(context.Background(), m.Attempt(handlerCase, []byte("null")), m); out.Kind != abi.Done || string(out.Output) != "7" {
				t.Errorf("ended %v %s %+v, want 7: start 4, warm 2, _initialize 1, each once", out.Kind, out.Output, out.Failure)
			}
		}
	})
	t.Run("the same seed gives the same chance, another seed another", func(t *testing.T) { testSeed(t, load) })
}

// testSeed compares the run's generator between attempts and runs.
func testSeed(t *testing.T, load Load) {
	g, err := load(t, newFixture().build(t, func(f *fixture, c *wasmasm.Code) {
		f.do(c, abi.FuncRandom, atBuffer, 4)
		c.I32Const(atBuffer).Mem(wasmasm.I32Load, 0).Call(f.say)
		f.done(c)
	}))
	if err != nil {
		t.Fatal(err)
	}
	numbers := func(seed uint64) string {
		m := NewMemory(Config{})
		a := m.Attempt(handlerCase, []byte("null"))
		a.Seed = seed
		if out := g.Run(context.Background(), a, m); out.Kind != abi.Done {
			t.Fatalf("ended %v", out.Kind)
		}
		return m.Lines()[0].Text
	}
	if a, b := numbers(1), numbers(1); a != b {
		t.Errorf("the same seed gave %s and %s", a, b)
	}
	if a, b := numbers(1), numbers(2); a == b {
		t.Errorf("two seeds gave %s", a)
	}
}
