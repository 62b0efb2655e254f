package module_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/module"
)

// handler is the smallest module that keeps the contract; change, if not nil,
// comes before its functions.
func handler(change func(m *wasmasm.Module)) *wasmasm.Module {
	m := wasmasm.New()
	output := m.ImportFunc(abi.ImportModule, abi.FuncOutput, i32(2), i32(1))
	if change != nil {
		change(m)
	}
	m.Memory(1, 16)
	m.ExportMemory(abi.ExportMemory, 0)
	const described = `{"abi":1,"sdk":"test/1","handlers":[{"name":"h"}]}`
	m.Data(64, []byte(described))
	m.ExportFunc(abi.ExportDescribe, m.Func(nil, i32(1), func(c *wasmasm.Code) {
		c.I32Const(64).I32Const(int32(len(described))).Call(output)
	}))
	m.ExportFunc(abi.ExportRun, m.Func(i32(1), i32(1), func(c *wasmasm.Code) {
		c.LocalGet(0)
	}))
	return m
}

func i32(n int) []wasmasm.ValType {
	ts := make([]wasmasm.ValType, n)
	for i := range ts {
		ts[i] = wasmasm.I32
	}
	return ts
}

func build(tb testing.TB, m *wasmasm.Module) []byte {
	tb.Helper()
	b, err := m.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// newRuntime is a runtime for modules, with the cache if it is not nil.
func newRuntime(tb testing.TB, cache *module.Cache) wazero.Runtime {
	tb.Helper()
	ctx := context.Background()
	c := wazero.NewRuntimeConfig().WithCoreFeatures(module.Features)
	if cache != nil {
		c = c.WithCompilationCache(cache.Compilation())
	}
	rt := wazero.NewRuntimeWithConfig(ctx, c)
	tb.Cleanup(func() { rt.Close(ctx) })
	return rt
}

// serve provides what handler imports: output keeps its arguments.
func serve(tb testing.TB, rt wazero.Runtime, output *[]uint64) {
	tb.Helper()
	ctx := context.Background()
	word := api.ValueTypeI32
	tick := api.GoFunc(func(_ context.Context, stack []uint64) { stack[0] = 1000 })
	if _, err := rt.NewHostModuleBuilder(module.MeterModule).NewFunctionBuilder().WithGoFunction(tick, nil, []api.ValueType{word}).Export(module.MeterTick).Instantiate(ctx); err != nil {
		tb.Fatal(err)
	}
	out := api.GoFunc(func(_ context.Context, stack []uint64) {
		*output = append((*output)[:0], stack[0], stack[1])
		stack[0] = 0
	})
	if _, err := rt.NewHostModuleBuilder(abi.ImportModule).NewFunctionBuilder().WithGoFunction(out, []api.ValueType{word, word}, []api.ValueType{word}).Export(abi.FuncOutput).Instantiate(ctx); err != nil {
		tb.Fatal(err)
	}
}

func writeFile(tb testing.TB, b []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "handler.wasm")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}
