package host

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// fixture assembles a module whose handlers are written instruction by
// instruction: what no SDK would do is easy to do here.
type fixture struct {
	*wasmasm.Module
	imports map[string]wasmasm.Func
	next    int32 // free memory
	names   []string
	bodies  []wasmasm.Func

	// boot, warm and describe, if set, are what the module does before its
	// handlers; describe replaces what the fixture says of itself.
	boot, warm, describe func(c *wasmasm.Code)
}

const i32, i64 = wasmasm.I32, wasmasm.I64

// newFixture has a memory of min to max pages, and may call everything.
func newFixture(min, max uint32) *fixture {
	f := &fixture{Module: wasmasm.New(), imports: map[string]wasmasm.Func{}, next: 1024}
	for _, i := range abi.Imports {
		f.imports[i.Name] = f.ImportFunc(abi.ImportModule, i.Name, i.Params, i.Results)
	}
	f.imports["fd_write"] = f.ImportFunc(abi.WASIModule, "fd_write", wasmasm.Types(i32, i32, i32, i32), wasmasm.Types(i32))
	f.imports["proc_exit"] = f.ImportFunc(abi.WASIModule, "proc_exit", wasmasm.Types(i32), nil)
	f.Memory(min, max)
	f.ExportMemory(abi.ExportMemory, 0)
	return f
}

// text puts s into memory and answers where.
func (f *fixture) text(s string) (p, n int32) {
	p, n = f.next, int32(len(s))
	f.Data(p, []byte(s))
	f.next += (n + 7) &^ 7
	return p, n
}

// call writes a call of an import: texts become pointer and length, ints i32
// and int64s i64 constants. Its result stays on the stack.
func (f *fixture) call(c *wasmasm.Code, name string, args ...any) {
	for _, a := range args {
		switch a := a.(type) {
		case string:
			p, n := f.text(a)
			c.I32Const(p).I32Const(n)
		case int:
			c.I32Const(int32(a))
		case int64:
			c.I64Const(a)
		default:
			panic(fmt.Sprintf("argument %T", a))
		}
	}
	c.Call(f.imports[name])
}

// do is call without the result.
func (f *fixture) do(c *wasmasm.Code, name string, args ...any) {
	f.call(c, name, args...)
	c.Op(wasmasm.Drop)
}

// handler adds a handler; its body leaves the answer of runner_run.
func (f *fixture) handler(name string, body func(c *wasmasm.Code)) *fixture {
	f.names = append(f.names, name)
	f.bodies = append(f.bodies, f.Func(nil, wasmasm.Types(i32), body))
	return f
}

// done ends a handler well.
func (f *fixture) done(c *wasmasm.Code, output string) {
	f.do(c, abi.FuncOutput, output)
	c.I32Const(abi.RunDone)
}

// bytes finishes the module.
func (f *fixture) bytes(t testing.TB) []byte {
	t.Helper()
	if f.boot != nil {
		f.ExportFunc(abi.ExportInitialize, f.Func(nil, nil, f.boot))
	}
	if f.warm != nil {
		f.ExportFunc(abi.ExportWarm, f.Func(nil, wasmasm.Types(i32), f.warm))
	}
	if f.describe == nil {
		quoted := make([]string, len(f.names))
		for i, n := range f.names {
			quoted[i] = fmt.Sprintf(`{"name":%q}`, n)
		}
		f.describe = func(c *wasmasm.Code) {
			f.do(c, abi.FuncOutput, `{"abi":1,"sdk":"fixture","handlers":[`+strings.Join(quoted, ",")+`]}`)
			c.I32Const(0)
		}
	}
	f.ExportFunc(abi.ExportDescribe, f.Func(nil, wasmasm.Types(i32), f.describe))
	f.ExportFunc(abi.ExportRun, f.Func(wasmasm.Types(i32), wasmasm.Types(i32), func(c *wasmasm.Code) {
		for i, body := range f.bodies {
			c.LocalGet(0).I32Const(int32(i)).Op(wasmasm.I32Eq).If(wasmasm.Empty).Call(body).Op(wasmasm.Return).End()
		}
		c.Op(wasmasm.Unreachable)
	}))
	b, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loop writes an endless loop.
func loop(c *wasmasm.Code) { c.Loop(wasmasm.Empty).Br(0).End() }

// newHost is a host that a test closes.
func newHost(t testing.TB, c Config) *Host {
	t.Helper()
	if c.TrimEvery == 0 {
		c.TrimEvery = -1
	}
	if c.Logger == nil {
		c.Logger = quiet
	}
	if c.InitTimeout == 0 {
		c.InitTimeout = time.Hour // a busy machine is not to change what is tested
	}
	h, err := New(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func load(t testing.TB, h *Host, b []byte) abi.Guest {
	t.Helper()
	g, err := h.Load(context.Background(), LoadParams{Bytes: b})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// settled is h's stats once no instance is being reset; one that was lost would
// keep it waiting.
func settled(h *Host) Stats {
	for {
		if s := h.Stats(); s.Instances.Out == 0 && s.Instances.Waiting == 0 {
			return s
		}
		runtime.Gosched()
	}
}

// freed waits until no module is loaded: the last instance of one may still be
// being reset.
func freed(h *Host) {
	for {
		h.modules.mu.Lock()
		n := len(h.modules.entries)
		h.modules.mu.Unlock()
		if n == 0 {
			return
		}
		runtime.Gosched()
	}
}
