package host

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/call"
	"github.com/jobrunner/runner/host/instance"
)

func TestModulesThatDoNotComeUp(t *testing.T) {
	patient := newHost(t, Config{MemoryLimit: 1 << 20})
	hasty := newHost(t, Config{InitTimeout: 50 * time.Millisecond, MemoryLimit: 1 << 20})
	for name, c := range map[string]struct {
		edit func(f *fixture)
		code string
		text string
	}{
		"loop in _initialize":     {func(f *fixture) { f.boot = loop }, call.CodeModuleInit, "did not start within 50ms"},
		"loop in runner_warm":     {func(f *fixture) { f.warm = func(c *wasmasm.Code) { loop(c); c.I32Const(0) } }, call.CodeModuleInit, "did not start within 50ms"},
		"loop in the start":       {func(f *fixture) { f.Start(f.Func(nil, nil, loop)) }, call.CodeModuleInit, "did not start within 50ms"},
		"trap in _initialize":     {func(f *fixture) { f.boot = func(c *wasmasm.Code) { c.Op(wasmasm.Unreachable) } }, call.CodeModuleInit, "_initialize: the guest trapped: unreachable"},
		"trap in the start":       {func(f *fixture) { f.Start(f.Func(nil, nil, func(c *wasmasm.Code) { c.Op(wasmasm.Unreachable) })) }, call.CodeModuleInit, "unreachable"},
		"trap in the description": {func(f *fixture) { f.describe = func(c *wasmasm.Code) { c.Op(wasmasm.Unreachable) } }, call.CodeModuleInit, "runner_describe: the guest trapped"},
		"exit in _initialize":     {func(f *fixture) { f.boot = func(c *wasmasm.Code) { f.call(c, "proc_exit", 0) } }, call.CodeModuleInit, "exited with code 0"},
		"exit 7 in warm":          {func(f *fixture) { f.warm = func(c *wasmasm.Code) { f.call(c, "proc_exit", 7); c.I32Const(0) } }, call.CodeModuleInit, "exited with code 7"},
		"warm answers 5":          {func(f *fixture) { f.warm = func(c *wasmasm.Code) { c.I32Const(5) } }, call.CodeModuleInit, "runner_warm: it answered 5"},
		"a step in warm":          {func(f *fixture) { f.warm = func(c *wasmasm.Code) { f.call(c, abi.FuncStepBegin, "s", 0) } }, call.CodeModuleInit, "may only log"},
		"output in _initialize":   {func(f *fixture) { f.boot = func(c *wasmasm.Code) { f.do(c, abi.FuncOutput, "1") } }, call.CodeModuleInit, "may only log"},
		"a secret in warm":        {func(f *fixture) { f.warm = func(c *wasmasm.Code) { f.call(c, abi.FuncSecret, "KEY") } }, call.CodeModuleInit, "may only log"},
		"no description":          {func(f *fixture) { f.describe = func(c *wasmasm.Code) { c.I32Const(0) } }, call.CodeModuleInit, "description"},
		"a description of nothing": {func(f *fixture) {
			f.describe = func(c *wasmasm.Code) { f.do(c, abi.FuncOutput, `{"abi":1,"handlers":[]}`); c.I32Const(0) }
		}, call.CodeModuleInit, "no handlers"},
		"a later contract": {func(f *fixture) {
			f.describe = func(c *wasmasm.Code) { f.do(c, abi.FuncOutput, `{"abi":2,"handlers":[{"name":"h"}]}`); c.I32Const(0) }
		}, call.CodeModuleInit, "ABI 2"},
		"more memory than it may have": {func(f *fixture) {
			f.boot = func(c *wasmasm.Code) {
				c.I32Const(100).MemoryGrow().I32Const(-1).Op(wasmasm.I32Eq).If(wasmasm.Empty).Op(wasmasm.Unreachable).End()
			}
		}, call.CodeModuleInit, "its limit is 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(2, 1000)
			c.edit(f)
			f.handler("h", func(c *wasmasm.Code) { f.done(c, "1") })
			h := patient
			if strings.HasPrefix(name, "loop") {
				h = hasty
			}
			g, err := h.Load(t.Context(), LoadParams{Bytes: f.bytes(t)})
			if err == nil {
				t.Fatalf("loaded: %+v", g.Describe())
			}
			if abi.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v", err)
			}
		})
	}
	for _, h := range []*Host{patient, hasty} {
		if s := h.Stats(); s.Instances.Templates != 0 || s.Running != 0 {
			t.Errorf("something is left: %+v", s)
		}
	}
}

func TestAModuleTooLargeForItsMemoryIsRefused(t *testing.T) {
	h := newHost(t, Config{})
	f := newFixture(20, 1000)
	f.handler("h", func(c *wasmasm.Code) { f.done(c, "1") })
	if _, err := h.Load(t.Context(), LoadParams{Bytes: f.bytes(t), MemoryLimit: 1 << 20}); abi.CodeOf(err) != instance.CodeModuleMemory {
		t.Errorf("error %v", err)
	}
}

func TestLoadingStopsWithItsContext(t *testing.T) {
	h := newHost(t, Config{})
	f := newFixture(2, 2)
	f.boot = loop
	f.handler("h", func(c *wasmasm.Code) { f.done(c, "1") })
	b := f.bytes(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for h.Stats().Running == 0 {
			runtime.Gosched()
		}
		cancel(errLost)
	}()
	if _, err := h.Load(ctx, LoadParams{Bytes: b}); !errors.Is(err, errLost) {
		t.Errorf("error %v", err)
	}
}

// hostile is a module with a handler for each way of hurting a host.
func hostile(t testing.TB) []byte {
	f := newFixture(4, 4096)
	f.handler("good", func(c *wasmasm.Code) { f.done(c, `"good"`) })
	f.handler("loop", func(c *wasmasm.Code) {
		f.do(c, abi.FuncStepBegin, "looping", 0)
		loop(c)
		c.I32Const(0)
	})
	f.handler("recurse", func(c *wasmasm.Code) {
		c.Call(c.Self)
		c.I32Const(1).Op(wasmasm.I32Add) // no tail call
	})
	f.handler("fill", func(c *wasmasm.Code) { // all work is in operations on ranges
		f.do(c, abi.FuncStepBegin, "filling", 0)
		c.Loop(wasmasm.Empty)
		for range 16 {
			c.I32Const(0).I32Const(7).I32Const(4 * 65536).MemoryFill()
		}
		c.Br(0).End()
		c.I32Const(0)
	})
	f.handler("bomb", func(c *wasmasm.Code) {
		c.Loop(wasmasm.Empty)
		c.I32Const(16).MemoryGrow().I32Const(-1).Op(wasmasm.I32Ne).BrIf(0).End()
		c.Op(wasmasm.Unreachable)
	})
	f.handler("print", func(c *wasmasm.Code) {
		n := c.Local(i32)
		text, size := f.text(strings.Repeat("x", 1000))
		iov, _ := f.text("            ")
		c.I32Const(iov).I32Const(text).Mem(wasmasm.I32Store, 0)
		c.I32Const(iov).I32Const(size).Mem(wasmasm.I32Store, 4)
		c.I32Const(5000).LocalSet(n)
		c.Loop(wasmasm.Empty)
		f.do(c, "fd_write", 2, int(iov), 1, int(iov)+8)
		c.LocalGet(n).I32Const(1).Op(wasmasm.I32Sub).LocalTee(n).BrIf(0).End()
		f.done(c, `"printed"`)
	})
	f.handler("wild", func(c *wasmasm.Code) {
		f.call(c, abi.FuncStepBegin, 0x7ffffff0, 64, 0)
	})
	f.handler("nested", func(c *wasmasm.Code) {
		f.do(c, abi.FuncStepBegin, "a", 0)
		f.call(c, abi.FuncStepBegin, "b", 0)
	})
	f.handler("exit", func(c *wasmasm.Code) {
		f.call(c, "proc_exit", 9)
		c.I32Const(0)
	})
	f.handler("div", func(c *wasmasm.Code) { c.I32Const(1).I32Const(0).Op(wasmasm.I32DivS) })
	return f.bytes(t)
}

func TestHostileHandlersEndAsTheyShouldAndHurtNobody(t *testing.T) {
	h := newHost(t, Config{MemoryLimit: 8 << 20})
	g := load(t, h, hostile(t))
	good := func() {
		t.Helper()
		if out := g.Run(t.Context(), attempt("good"), &script{}); out.Kind != abi.Done || string(out.Output) != `"good"` {
			t.Fatalf("a good attempt afterwards: %+v", out)
		}
	}
	for handler, want := range map[string]struct {
		kind    abi.OutcomeKind
		code    string
		failure abi.FailureKind
	}{
		"recurse": {abi.Crashed, abi.CodeGuestStack, abi.FailTerminal},
		"bomb":    {abi.Crashed, abi.CodeGuestMemory, abi.FailTerminal},
		"print":   {abi.Done, "", 0},
		"wild":    {abi.Crashed, abi.CodeABIViolation, abi.FailTerminal},
		"nested":  {abi.Crashed, abi.CodeABIViolation, abi.FailTerminal},
		"exit":    {abi.Crashed, abi.CodeGuestExit, abi.FailRetry},
		"div":     {abi.Crashed, abi.CodeGuestTrap, abi.FailRetry},
	} {
		out := g.Run(t.Context(), attempt(handler), &script{})
		if out.Kind != want.kind || out.Failure.Code != want.code || out.Failure.Kind != want.failure {
			t.Errorf("%s: %+v", handler, out)
		}
		good()
	}
	for _, handler := range []string{"loop", "fill"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := &script{onBegin: func(context.Context, string) error { go cancel(errLost); return nil }}
		if out := g.Run(ctx, attempt(handler), calls); out.Kind != abi.Stopped || out.Err != errLost {
			t.Errorf("%s: %+v", handler, out)
		}
		good()
	}
	if s := settled(h); s.Running != 0 || s.SlotsUsed != 0 {
		t.Errorf("something is left: %+v", s)
	}
}

// A guest that never ends must not keep the others from running, even on one
// slot.
func TestABusyGuestSharesItsSlot(t *testing.T) {
	h := newHost(t, Config{CPUSlots: 1, Quantum: 1000})
	g := load(t, h, hostile(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	looping := make(chan struct{})
	ended := make(chan abi.Outcome)
	go func() {
		ended <- g.Run(ctx, attempt("loop"), &script{onBegin: func(context.Context, string) error { close(looping); return nil }})
	}()
	<-looping
	for range 5 {
		if out := g.Run(t.Context(), attempt("good"), &script{}); out.Kind != abi.Done {
			t.Errorf("beside the busy guest: %+v", out)
		}
	}
	cancel(errLost)
	if out := <-ended; out.Kind != abi.Stopped || out.Err != errLost {
		t.Errorf("the busy guest: %+v", out)
	}
}

// Nor may one whose loop calls the host and hardly burns fuel: here it has so
// much that it never comes to a tick of its own.
func TestAGuestThatOnlyCallsIsStoppedByItsCalls(t *testing.T) {
	f := newFixture(8, 8)
	again := func(name string, results int, call string, args ...any) {
		f.handler(name, func(c *wasmasm.Code) {
			f.do(c, abi.FuncStepBegin, "calling", 0)
			c.Loop(wasmasm.Empty)
			f.call(c, call, args...)
			for range results {
				c.Op(wasmasm.Drop)
			}
			c.Br(0).End()
			c.I32Const(0)
		})
	}
	again("chance", 0, abi.FuncRandom, 0, 4*65536)
	again("time", 1, abi.FuncNow)
	again("words", 0, abi.FuncLog, 1, strings.Repeat("words ", 1000))
	again("results", 1, abi.FuncOutput, `"`+strings.Repeat("x", 100_000)+`"`)
	h := newHost(t, Config{Quantum: 1 << 30})
	g := load(t, h, f.bytes(t))
	for _, handler := range []string{"chance", "time", "words", "results"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := &script{onBegin: func(context.Context, string) error { go cancel(errLost); return nil }}
		if out := g.Run(ctx, attempt(handler), calls); out.Kind != abi.Stopped || out.Err != errLost {
			t.Errorf("%s: %+v", handler, out)
		}
	}
}

// What panics on the host's side is the host's failure: the attempt is retried
// and the instance not used again.
func TestAPanicInCallsIsAHostFailure(t *testing.T) {
	h := newHost(t, Config{})
	g := load(t, h, hostile(t))
	for name, fail := range map[string]func(){
		"panic":         func() { panic("a bug") },
		"error":         func() { panic(errors.New("a bug")) },
		"runtime error": func() { var p *int; *p++ },
	} {
		before := h.Stats().Instances.Discards
		out := g.Run(t.Context(), attempt("loop"), &script{onBegin: func(context.Context, string) error { fail(); return nil }})
		if out.Kind != abi.Crashed || out.Failure.Code != abi.CodeHostFailure || out.Failure.Kind != abi.FailRetry || out.Err == nil {
			t.Errorf("%s: %+v", name, out)
		}
		if strings.Contains(out.Failure.Message, "bug") {
			t.Errorf("%s: the failure tells the caller %q", name, out.Failure.Message)
		}
		if s := h.Stats(); s.Instances.Discards != before+1 || s.SlotsUsed != 0 || s.Running != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if out := g.Run(t.Context(), attempt("good"), &script{}); out.Kind != abi.Done {
		t.Errorf("afterwards: %+v", out)
	}
}

// badLog panics where the host itself logs, outside the guest.
type badLog struct{ script }

func (*badLog) Log(context.Context, abi.Level, string) { panic("no log today") }

func TestAPanicOutsideTheGuestIsAHostFailureToo(t *testing.T) {
	f := newFixture(2, 2)
	f.handler("half a line", func(c *wasmasm.Code) {
		text, size := f.text("half")
		iov, _ := f.text("            ")
		c.I32Const(iov).I32Const(text).Mem(wasmasm.I32Store, 0)
		c.I32Const(iov).I32Const(size).Mem(wasmasm.I32Store, 4)
		f.do(c, "fd_write", 1, int(iov), 1, int(iov)+8)
		f.done(c, "1")
	})
	h := newHost(t, Config{})
	g := load(t, h, f.bytes(t))
	out := g.Run(t.Context(), attempt("half a line"), &badLog{})
	if out.Kind != abi.Crashed || out.Failure.Code != abi.CodeHostFailure {
		t.Errorf("outcome %+v", out)
	}
	if s := h.Stats(); s.SlotsUsed != 0 || s.Running != 0 || s.Instances.Discards != 1 {
		t.Errorf("stats %+v", s)
	}
}

// A test helper that calls t.Fatal inside Calls ends the goroutine: everything
// is given back all the same.
func TestAGoroutineThatEndsInsideCallsLeavesNothingBehind(t *testing.T) {
	h := newHost(t, Config{CPUSlots: 1})
	g := load(t, h, hostile(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Run(t.Context(), attempt("loop"), &script{onBegin: func(context.Context, string) error { runtime.Goexit(); return nil }})
	}()
	<-done
	if s := settled(h); s.SlotsUsed != 0 || s.Running != 0 {
		t.Errorf("stats %+v", s)
	}
	if out := g.Run(t.Context(), attempt("good"), &script{}); out.Kind != abi.Done {
		t.Errorf("afterwards: %+v", out)
	}
}

func TestAnUnknownHandlerIsTerminal(t *testing.T) {
	h := newHost(t, Config{})
	g := load(t, h, hostile(t))
	out := g.Run(t.Context(), attempt("nobody"), &script{})
	if out.Kind != abi.Crashed || out.Failure.Code != CodeHandlerUnknown || out.Failure.Kind != abi.FailTerminal || out.Err == nil {
		t.Errorf("outcome %+v", out)
	}
}
