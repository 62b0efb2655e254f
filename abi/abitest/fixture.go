package abitest

import (
	"fmt"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// Layout of a fixture's memory, in bytes.
const (
	atCounter = 8    // i32: attempts that ran in this memory
	atNumber  = 32   // where say writes digits, backwards from here on
	atReport  = 48   // "[0,0,0]"
	atText    = 1024 // strings of the body
	atBuffer  = 1 << 16
	bufferLen = 1 << 16
	pages     = 3
)

// Names of the handlers that every fixture has.
const (
	handlerCase  = "case"  // what is tested
	handlerAfter = "after" // looks whether the attempt before left anything
)

// pristine is what handlerAfter answers in memory that no other attempt wrote:
// one attempt by memory and by global, three pages.
const pristine = "[1,1,3]"

// fixture assembles a module with those two handlers.
type fixture struct {
	m      *wasmasm.Module
	fns    map[string]wasmasm.Func
	strs   map[string]int32
	next   int32
	say    wasmasm.Func // (i32): its value as a log line
	result wasmasm.Func // (): the last result as a log line
}

// wasi are the functions of WASI that fixtures use.
var wasi = []abi.Func{
	{Name: "proc_exit", Params: []abi.ValType{abi.I32}},
	{Name: "fd_write", Params: []abi.ValType{abi.I32, abi.I32, abi.I32, abi.I32}, Results: []abi.ValType{abi.I32}},
}

func newFixture() *fixture {
	f := &fixture{m: wasmasm.New(), fns: map[string]wasmasm.Func{}, strs: map[string]int32{}, next: atText}
	for _, fn := range abi.Imports {
		f.fns[fn.Name] = f.m.ImportFunc(abi.ImportModule, fn.Name, fn.Params, fn.Results)
	}
	for _, fn := range wasi {
		f.fns[fn.Name] = f.m.ImportFunc(abi.WASIModule, fn.Name, fn.Params, fn.Results)
	}
	f.fns["abort"] = f.m.ImportFunc(abi.EnvModule, "abort", wasmasm.Types(abi.I32, abi.I32, abi.I32, abi.I32), nil)
	return f
}

// str is where s stands in memory.
func (f *fixture) str(s string) (p, n int32) {
	if at, ok := f.strs[s]; ok {
		return at, int32(len(s))
	}
	at := f.next
	f.next += int32(len(s))
	f.strs[s] = at
	f.m.Data(at, []byte(s))
	return at, int32(len(s))
}

// do calls a host function. An int is an i32, an int64 an i64, a string its
// pointer and length. What the function answers stays on the stack.
func (f *fixture) do(c *wasmasm.Code, name string, args ...any) *wasmasm.Code {
	fn, ok := f.fns[name]
	if !ok {
		panic("no host function " + name)
	}
	for _, a := range args {
		switch a := a.(type) {
		case int:
			c.I32Const(int32(a))
		case int64:
			c.I64Const(a)
		case string:
			p, n := f.str(a)
			c.I32Const(p).I32Const(n)
		default:
			panic(fmt.Sprintf("argument %T", a))
		}
	}
	return c.Call(fn)
}

// run is do without the answer.
func (f *fixture) run(c *wasmasm.Code, name string, args ...any) {
	f.do(c, name, args...).Op(wasmasm.Drop)
}

// tell is do with the answer as a log line.
func (f *fixture) tell(c *wasmasm.Code, name string, args ...any) { f.do(c, name, args...).Call(f.say) }

// tellResult writes the last result as a log line.
func (f *fixture) tellResult(c *wasmasm.Code) { c.Call(f.result) }

// done is output("null"), whose 0 is the answer of runner_run.
func (f *fixture) done(c *wasmasm.Code) { f.do(c, abi.FuncOutput, "null") }

// build assembles a module whose handlerCase is body, which leaves what
// runner_run answers on the stack.
func (f *fixture) build(tb testing.TB, body func(f *fixture, c *wasmasm.Code)) []byte {
	tb.Helper()
	i32 := wasmasm.Types(wasmasm.I32)
	f.m.Memory(pages, 0)
	f.m.ExportMemory(abi.ExportMemory, 0)
	global := f.m.GlobalI32(true, 0)
	f.m.Data(atReport, []byte("[0,0,0]"))
	f.defineSay()
	f.defineResult()

	// Every attempt leaves traces: in memory, in a global, in its size.
	touch := f.m.Func(nil, nil, func(c *wasmasm.Code) {
		c.I32Const(0).I32Const(0).Mem(wasmasm.I32Load, atCounter).I32Const(1).Op(wasmasm.I32Add).Mem(wasmasm.I32Store, atCounter)
		c.GlobalGet(global).I32Const(1).Op(wasmasm.I32Add).GlobalSet(global)
	})
	digit := func(c *wasmasm.Code, offset int32, value func()) {
		c.I32Const(0)
		value()
		c.I32Const('0').Op(wasmasm.I32Add).Mem(wasmasm.I32Store8, uint32(atReport+offset))
	}
	after := f.m.Func(nil, i32, func(c *wasmasm.Code) {
		digit(c, 1, func() { c.I32Const(0).Mem(wasmasm.I32Load, atCounter) })
		digit(c, 3, func() { c.GlobalGet(global) })
		digit(c, 5, func() { c.MemorySize() })
		c.I32Const(atReport).I32Const(7).Call(f.fns[abi.FuncOutput])
	})
	tested := f.m.Func(nil, i32, func(c *wasmasm.Code) {
		c.I32Const(1).MemoryGrow().Op(wasmasm.Drop)
		body(f, c)
	})
	f.m.ExportFunc(abi.ExportDescribe, f.m.Func(nil, i32, func(c *wasmasm.Code) {
		f.do(c, abi.FuncOutput, `{"abi":1,"sdk":"abitest","handlers":[{"name":"`+handlerCase+`"},{"name":"`+handlerAfter+`"}]}`)
	}))
	f.m.ExportFunc(abi.ExportRun, f.m.Func(i32, i32, func(c *wasmasm.Code) {
		c.Call(touch).LocalGet(0).If(wasmasm.Yields(wasmasm.I32)).Call(after).Else().Call(tested).End()
	}))
	wasm, err := f.m.Build()
	if err != nil {
		tb.Fatal(err)
	}
	if f.next > atBuffer {
		tb.Fatalf("the fixture's strings take %d bytes", f.next)
	}
	return wasm
}

func (f *fixture) defineSay() {
	f.say = f.m.Func(wasmasm.Types(wasmasm.I32), nil, func(c *wasmasm.Code) {
		p, u := c.Local(wasmasm.I32), c.Local(wasmasm.I32)
		c.I32Const(atNumber).LocalSet(p)
		c.LocalGet(0).LocalSet(u)
		c.LocalGet(0).I32Const(0).Op(wasmasm.I32LtS).If(wasmasm.Empty)
		c.I32Const(0).LocalGet(0).Op(wasmasm.I32Sub).LocalSet(u)
		c.End()
		c.Loop(wasmasm.Empty)
		c.LocalGet(p).I32Const(1).Op(wasmasm.I32Sub).LocalTee(p)
		c.LocalGet(u).I32Const(10).Op(wasmasm.I32RemU).I32Const('0').Op(wasmasm.I32Add).Mem(wasmasm.I32Store8, 0)
		c.LocalGet(u).I32Const(10).Op(wasmasm.I32DivU).LocalTee(u).BrIf(0)
		c.End()
		c.LocalGet(0).I32Const(0).Op(wasmasm.I32LtS).If(wasmasm.Empty)
		c.LocalGet(p).I32Const(1).Op(wasmasm.I32Sub).LocalTee(p).I32Const('-').Mem(wasmasm.I32Store8, 0)
		c.End()
		c.I32Const(int32(abi.LevelInfo)).LocalGet(p).I32Const(atNumber).LocalGet(p).Op(wasmasm.I32Sub).Call(f.fns[abi.FuncLog])
	})
}

func (f *fixture) defineResult() {
	f.result = f.m.Func(nil, nil, func(c *wasmasm.Code) {
		c.I32Const(int32(abi.LevelInfo)).I32Const(atBuffer)
		c.I32Const(atBuffer).I32Const(bufferLen).I32Const(0).Call(f.fns[abi.FuncResultRead])
		c.Call(f.fns[abi.FuncLog])
	})
}
