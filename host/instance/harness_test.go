package instance

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/module"
)

const i32 = wasmasm.I32

// imagePages is the memory of the test module: as much as a Go handler has.
const imagePages = 56

// scribbler is a module whose runner_run(n) writes n pages spread over its
// memory, changes globals of every type, and answers a number that is 0 only
// if it found everything as it left the warm-up. With n >= 1000 it also grows
// its memory by n-1000 pages and writes those; with n = -1 it traps, with n =
// -2 it never ends.
func scribbler(t testing.TB, edit func(m *wasmasm.Module)) []byte {
	t.Helper()
	m := wasmasm.New()
	m.Memory(imagePages, 0)
	m.ExportMemory(abi.ExportMemory, 0)
	m.Data(8192, []byte("constant data"))
	gi := m.GlobalI32(true, 0)
	gl := m.Global(wasmasm.I64, true, func(c *wasmasm.Code) { c.I64Const(7) })
	gf := m.Global(wasmasm.F32, true, func(c *wasmasm.Code) { c.F32Const(1.5) })
	gd := m.Global(wasmasm.F64, true, func(c *wasmasm.Code) { c.F64Const(2.5) })
	m.ExportFunc(abi.ExportWarm, m.Func(nil, wasmasm.Types(i32), func(c *wasmasm.Code) {
		c.I32Const(4096).I32Const(41).Mem(wasmasm.I32Store, 0)
		c.I32Const(41).GlobalSet(gi)
		c.I32Const(0)
	}))
	m.ExportFunc(abi.ExportDescribe, m.Func(nil, wasmasm.Types(i32), func(c *wasmasm.Code) {
		c.I32Const(0).I32Const(1).Mem(wasmasm.I32Store, 0)
		c.I32Const(0)
	}))
	run := m.Func(wasmasm.Types(i32), wasmasm.Types(i32), func(c *wasmasm.Code) {
		n, at, bad := uint32(0), c.Local(i32), c.Local(i32)
		c.LocalGet(n).I32Const(-1).Op(wasmasm.I32Eq).If(wasmasm.Empty).I32Const(123).GlobalSet(gi).Op(wasmasm.Unreachable).End()
		c.LocalGet(n).I32Const(-2).Op(wasmasm.I32Eq).If(wasmasm.Empty).Loop(wasmasm.Empty).Br(0).End().End()
		// what a run left behind would be found here
		c.I32Const(4096).Mem(wasmasm.I32Load, 0).I32Const(41).Op(wasmasm.I32Ne).LocalSet(bad)
		c.GlobalGet(gi).I32Const(41).Op(wasmasm.I32Ne).LocalGet(bad).Op(wasmasm.I32Or).LocalSet(bad)
		c.GlobalGet(gl).I64Const(7).Op(wasmasm.I64Ne).LocalGet(bad).Op(wasmasm.I32Or).LocalSet(bad)
		c.GlobalGet(gf).F32Const(1.5).Op(wasmasm.F32Ne).LocalGet(bad).Op(wasmasm.I32Or).LocalSet(bad)
		c.GlobalGet(gd).F64Const(2.5).Op(wasmasm.F64Ne).LocalGet(bad).Op(wasmasm.I32Or).LocalSet(bad)
		c.MemorySize().I32Const(imagePages).Op(wasmasm.I32Ne).LocalGet(bad).Op(wasmasm.I32Or).LocalSet(bad)
		c.I32Const(0).GlobalSet(gi)
		c.I64Const(8).GlobalSet(gl)
		c.F32Const(3).GlobalSet(gf)
		c.F64Const(4).GlobalSet(gd)
		c.I32Const(4096).I32Const(0).Mem(wasmasm.I32Store, 0)
		// grown pages must come as zeros
		c.LocalGet(n).I32Const(1000).Op(wasmasm.I32GeS).If(wasmasm.Empty)
		c.LocalGet(n).I32Const(1000).Op(wasmasm.I32Sub).MemoryGrow().Op(wasmasm.Drop)
		c.I32Const(imagePages * 65536).LocalSet(at)
		c.Loop(wasmasm.Empty)
		c.LocalGet(at).MemorySize().I32Const(65536).Op(wasmasm.I32Mul).Op(wasmasm.I32LtU).If(wasmasm.Empty)
		c.LocalGet(at).Mem(wasmasm.I32Load, 0).LocalGet(bad).Op(wasmasm.I32Or).LocalSet(bad)
		c.LocalGet(at).I32Const(-1).Mem(wasmasm.I32Store, 0)
		c.LocalGet(at).I32Const(4096).Op(wasmasm.I32Add).LocalSet(at)
		c.Br(1).End().End()
		c.LocalGet(bad).Op(wasmasm.Return).End()
		// n pages, every eighth
		c.I32Const(16384).LocalSet(at)
		c.Loop(wasmasm.Empty)
		c.LocalGet(n).If(wasmasm.Empty)
		c.LocalGet(at).Mem(wasmasm.I32Load, 0).LocalGet(bad).Op(wasmasm.I32Or).LocalSet(bad)
		c.LocalGet(at).I32Const(-1).Mem(wasmasm.I32Store, 0)
		c.LocalGet(at).I32Const(8 * 4096).Op(wasmasm.I32Add).LocalSet(at)
		c.LocalGet(n).I32Const(1).Op(wasmasm.I32Sub).LocalSet(n)
		c.Br(1).End().End()
		c.LocalGet(bad)
	})
	m.ExportFunc(abi.ExportRun, run)
	if edit != nil {
		edit(m)
	}
	b, err := m.Build()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// lab is a runtime and a pool with one template.
type lab struct {
	t        testing.TB
	pool     *Pool
	template *Template
	params   TemplateParams
}

func newLab(t testing.TB, cfg Config, wasm []byte) *lab {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(module.Features))
	t.Cleanup(func() { rt.Close(ctx) })
	_, err := rt.NewHostModuleBuilder(module.MeterModule).NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, stack []uint64) {
		if ctx.Err() != nil {
			panic(ctx.Err())
		}
		runtime.Gosched()
		stack[0] = 10_000
	}), nil, []api.ValueType{api.ValueTypeI32}).Export(module.MeterTick).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := module.Load(ctx, module.Params{Bytes: wasm, Runtime: rt})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	l := &lab{t: t, pool: pool, params: TemplateParams{
		Runtime: rt, Module: mod, MemoryLimit: 128 * wasmPage,
		Boot: func(ctx context.Context, in *Instance) error {
			_, err := in.Call(ctx, Warm, 0, 0)
			return err
		},
		Probe: func(ctx context.Context, in *Instance) ([]byte, error) {
			r, err := in.Call(ctx, Describe, 0, 0)
			return binary.LittleEndian.AppendUint64(nil, r), err
		},
	}}
	if l.template, err = pool.NewTemplate(ctx, l.params); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) acquire() *Instance {
	l.t.Helper()
	in, err := l.template.Acquire(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	return in
}

// run is an attempt that writes n pages; it must find nothing of an earlier one.
func (l *lab) run(n int) {
	l.t.Helper()
	in := l.acquire()
	r, err := in.Call(context.Background(), Run, uint64(uint32(n)), 1000)
	if err != nil || r != 0 {
		l.t.Errorf("run(%d) finds traces of an earlier run: %d, %v", n, r, err)
	}
	l.template.Release(in, false)
}

// settle waits until no reset is under way.
func (l *lab) settle() Stats {
	l.pool.work.Wait()
	return l.pool.Stats()
}
