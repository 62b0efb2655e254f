package call

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// forwarder is a module that exports every function it can import, so that a
// test plays the guest: it writes memory and makes the calls itself.
var forwarder = sync.OnceValue(func() []byte {
	m := wasmasm.New()
	type fn struct {
		name            string
		params, results []wasmasm.ValType
	}
	var fns []fn
	var imported []wasmasm.Func
	add := func(module, name string, params, results []wasmasm.ValType) {
		fns = append(fns, fn{name, params, results})
		imported = append(imported, m.ImportFunc(module, name, params, results))
	}
	for module, funcs := range map[string][]abi.Func{abi.ImportModule: abi.Imports, abi.WASIModule: abi.WASIImports, abi.EnvModule: abi.EnvImports} {
		for _, f := range funcs {
			add(module, f.Name, f.Params, f.Results)
		}
	}
	add("meter", "tick", nil, wasmasm.Types(wasmasm.I32))
	m.Memory(40, 64)
	m.ExportMemory("memory", 0)
	for at, fn := range fns {
		m.ExportFunc(fn.name, m.Func(fn.params, fn.results, func(c *wasmasm.Code) {
			for p := range fn.params {
				c.LocalGet(uint32(p))
			}
			c.Call(imported[at])
		}))
	}
	b, err := m.Build()
	if err != nil {
		panic(err)
	}
	return b
})

// guest is a guest played by a test.
type guest struct {
	t     *testing.T
	mod   api.Module
	state *State
	next  uint32 // free memory
}

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// begin starts an attempt against calls; caps may be nil.
func begin(t *testing.T, calls abi.Calls, caps Capabilities) *guest {
	t.Helper()
	a := &abi.Attempt{Handler: "h", Input: []byte(`{"n":1}`), Now: epoch, Seed: 7, Meta: abi.Meta{RunID: "r1", Job: "j", Attempt: 2}}
	return beginWith(t, t.Context(), BeginParams{Attempt: a, Calls: calls, Capabilities: caps})
}

func beginWith(t *testing.T, ctx context.Context, p BeginParams) *guest {
	t.Helper()
	if p.Capabilities == nil {
		p.Capabilities = fakeCaps{}
	}
	s, err := Begin(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Enter()
	return &guest{t: t, mod: instantiate(t), state: s, next: 1024}
}

func instantiate(t *testing.T) api.Module {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	t.Cleanup(func() { rt.Close(ctx) })
	if err := Register(ctx, rt, "meter", "tick"); err != nil {
		t.Fatal(err)
	}
	mod, err := rt.Instantiate(ctx, forwarder())
	if err != nil {
		t.Fatal(err)
	}
	return mod
}

// put writes b into memory and answers where.
func (g *guest) put(b string) (p, n uint64) {
	g.t.Helper()
	at := g.next
	if !g.mod.Memory().WriteString(at, b) {
		g.t.Fatal("the test's memory is full")
	}
	g.next += uint32(len(b)+7) &^ 7
	return uint64(at), uint64(len(b))
}

// try makes a call and answers its result; unwound says that the host did not
// let the guest go on.
func (g *guest) try(fn string, args ...uint64) (result int64, unwound bool) {
	g.t.Helper()
	f := g.mod.ExportedFunction(fn)
	// Compiled code leaves anything in the upper half of an i32's slot.
	args = slices.Clone(args)
	for i, t := range f.Definition().ParamTypes() {
		if t == api.ValueTypeI32 {
			args[i] = args[i]&0xffffffff | 0xdeadbeef<<32
		}
	}
	res, err := f.Call(g.state, args...)
	if err != nil {
		return 0, true
	}
	if len(res) == 0 {
		return 0, false
	}
	if g.mod.ExportedFunction(fn).Definition().ResultTypes()[0] == api.ValueTypeI32 {
		return int64(int32(uint32(res[0]))), false
	}
	return int64(res[0]), false
}

// call is try for a call that must answer.
func (g *guest) call(fn string, args ...uint64) int64 {
	g.t.Helper()
	r, unwound := g.try(fn, args...)
	if unwound {
		g.t.Fatalf("%s unwound the guest: %v", fn, g.state.err)
	}
	return r
}

// args flattens texts to pointers and lengths, and passes numbers on.
func (g *guest) args(in ...any) []uint64 {
	var out []uint64
	for _, a := range in {
		switch a := a.(type) {
		case string:
			p, n := g.put(a)
			out = append(out, p, n)
		case int:
			out = append(out, uint64(int64(a)))
		}
	}
	return out
}

// want makes a call and checks its answer.
func (g *guest) want(answer int64, fn string, in ...any) {
	g.t.Helper()
	if got := g.call(fn, g.args(in...)...); got != answer {
		g.t.Fatalf("%s%q answers %d, want %d (last result %s)", fn, in, got, answer, g.state.result)
	}
}

// violates makes a call that must be a violation whose text contains detail.
func (g *guest) violates(detail, fn string, args ...uint64) {
	g.t.Helper()
	if r, unwound := g.try(fn, args...); !unwound {
		g.t.Fatalf("%s%v answers %d, want a violation", fn, args, r)
	}
	out, _ := g.state.End(Ended{Export: abi.ExportRun, Err: unwound})
	if out.Kind != abi.Crashed || out.Failure.Code != abi.CodeABIViolation || out.Failure.Kind != abi.FailTerminal {
		g.t.Fatalf("%s%v ends the attempt as %v %+v, want a violation", fn, args, out.Kind, out.Failure)
	}
	var v *abi.Violation
	if !errors.As(out.Err, &v) || !strings.Contains(v.Error(), detail) {
		g.t.Fatalf("%s%v: violation %v, want one about %q", fn, args, out.Err, detail)
	}
}

// last is the last result, read as a guest does.
func (g *guest) last() string {
	g.t.Helper()
	n := g.call(abi.FuncResultLen)
	p, _ := g.put(strings.Repeat("?", int(n)))
	if got := g.call(abi.FuncResultRead, p, uint64(n), 0); got != n {
		g.t.Fatalf("result_read copies %d of %d bytes", got, n)
	}
	b, _ := g.mod.Memory().Read(uint32(p), uint32(n))
	return string(b)
}

// fakeCaps are capabilities whose methods a test may set.
type fakeCaps struct {
	features abi.Features
	fetch    func(abi.HTTPRequest, []byte) (abi.HTTPResponse, []byte, error)
	secrets  map[string]string
	env      []string
}

func (f fakeCaps) Features() abi.Features { return f.features }
func (f fakeCaps) Environ() []string      { return f.env }
func (f fakeCaps) Fetch(_ context.Context, r abi.HTTPRequest, content []byte) (abi.HTTPResponse, []byte, error) {
	return f.fetch(r, content)
}
func (f fakeCaps) Secret(_ context.Context, name string) (string, error) {
	if v, ok := f.secrets[name]; ok {
		return v, nil
	}
	return "", &abi.Refusal{Code: abi.CodeDenied, Failure: abi.Failure{Message: "no secret " + name}}
}

// fakeCalls answers with what a test set, and nothing else.
type fakeCalls struct {
	abi.Calls // nil: what a test did not expect panics
	features  abi.Features
	begin     func(name string, flags abi.StepFlags) (abi.StepBegun, error)
	end       func(output string) (time.Time, error)
	failStep  func(f abi.Failure) (time.Time, error)
	sleep     func(name string, d time.Duration) (time.Time, error)
	wait      func(p abi.WaitParams) ([]byte, time.Time, error)
	enqueue   func(runs []abi.EnqueueParams) ([]abi.EnqueueResult, error)
	publish   func(e abi.PublishParams) error
	invoke    func(runs []abi.EnqueueParams, limit int) ([]abi.InvokeResult, time.Time, error)
	undo      func() (string, error)
	sql       func(request string) ([]byte, error)
	lines     []string // level and text
	progress  []string
	ctx       context.Context // of the last call
}

func (f *fakeCalls) StepBegin(ctx context.Context, name string, flags abi.StepFlags) (abi.StepBegun, error) {
	f.ctx = ctx
	if f.begin == nil {
		return abi.StepBegun{}, nil
	}
	return f.begin(name, flags)
}
func (f *fakeCalls) StepEnd(ctx context.Context, output []byte) (time.Time, error) {
	if f.end == nil {
		return time.Time{}, nil
	}
	return f.end(string(output))
}
func (f *fakeCalls) StepFail(_ context.Context, x abi.Failure) (time.Time, error) {
	return f.failStep(x)
}
func (f *fakeCalls) Sleep(_ context.Context, name string, d time.Duration) (time.Time, error) {
	return f.sleep(name, d)
}
func (f *fakeCalls) WaitEvent(_ context.Context, p abi.WaitParams) ([]byte, time.Time, error) {
	return f.wait(p)
}
func (f *fakeCalls) Enqueue(_ context.Context, runs []abi.EnqueueParams) ([]abi.EnqueueResult, error) {
	return f.enqueue(runs)
}
func (f *fakeCalls) Publish(_ context.Context, e abi.PublishParams) error {
	return f.publish(e)
}
func (f *fakeCalls) Invoke(_ context.Context, runs []abi.EnqueueParams, limit int) ([]abi.InvokeResult, time.Time, error) {
	return f.invoke(runs, limit)
}
func (f *fakeCalls) Log(_ context.Context, level abi.Level, line string) {
	f.lines = append(f.lines, string('0'+rune(level))+" "+line)
}
func (f *fakeCalls) Progress(_ context.Context, permille int, note string) {
	f.progress = append(f.progress, note)
}
func (f *fakeCalls) Features() abi.Features                     { return f.features }
func (f *fakeCalls) Compensate(context.Context) (string, error) { return f.undo() }
func (f *fakeCalls) SQL(_ context.Context, request []byte) ([]byte, error) {
	return f.sql(string(request))
}

func code(c abi.Code) int64 { return int64(c) }
