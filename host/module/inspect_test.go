package module_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/module"
)

func TestASoundHandlerHasNoProblems(t *testing.T) {
	b := build(t, handler(nil))
	in := module.Inspect(b)
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	if in.Size != int64(len(b)) || len(in.Digest) != 64 || in.Reset() != "image" || in.Report.MemoryMin != 1 || in.Report.MemoryMax != 16 {
		t.Errorf("got %+v", in)
	}
}

// Everything that the contract and the foreign modules name may be imported,
// with its own type and no other.
func TestEveryServedFunctionMayBeImported(t *testing.T) {
	for mod, funcs := range map[string][]abi.Func{abi.ImportModule: abi.Imports, abi.WASIModule: abi.WASIImports, abi.EnvModule: abi.EnvImports} {
		for _, f := range funcs {
			if err := module.Check(build(t, handler(func(m *wasmasm.Module) { m.ImportFunc(mod, f.Name, f.Params, f.Results) }))); err != nil {
				t.Errorf("%s.%s: %v", mod, f.Name, err)
			}
			err := module.Check(build(t, handler(func(m *wasmasm.Module) {
				m.ImportFunc(mod, f.Name, append([]wasmasm.ValType{wasmasm.F32}, f.Params...), f.Results)
			})))
			if abi.CodeOf(err) != module.CodeImport {
				t.Errorf("%s.%s with another type: %v", mod, f.Name, err)
			}
		}
	}
}

func TestProblems(t *testing.T) {
	imports := func(mod, name string, params, results []wasmasm.ValType) *wasmasm.Module {
		return handler(func(m *wasmasm.Module) { m.ImportFunc(mod, name, params, results) })
	}
	for _, tt := range []struct {
		name string
		m    *wasmasm.Module
		want []string // all problems, each by its beginning
	}{
		{"unknown function of the contract", imports("runner_v1", "frobnicate", nil, nil), []string{
			"X_MODULE_IMPORT: imports the function runner_v1.frobnicate, which this host does not have (update the runner, or build with the SDK of this runner's version)"}},
		{"another type", imports("runner_v1", "sleep", i32(2), i32(1)), []string{
			"X_MODULE_IMPORT: imports runner_v1.sleep with type (i32 i32) -> i32, expected (i32 i32 i64) -> i32"}},
		{"a later version of the contract", imports("runner_v2", "sleep", i32(2), i32(1)), []string{
			"X_MODULE_ABI: is built for version 2 of the contract (it imports runner_v2.sleep); this runner serves version 1 (update the runner, or build with an SDK for version 1)"}},
		{"version told once", handler(func(m *wasmasm.Module) {
			m.ImportFunc("runner_v2", "a", nil, nil)
			m.ImportFunc("runner_v2", "b", nil, nil)
		}), []string{"X_MODULE_ABI: is built for version 2"}},
		{"unknown function of WASI", imports("wasi_snapshot_preview1", "sock_open", nil, nil), []string{
			"X_MODULE_IMPORT: imports the function wasi_snapshot_preview1.sock_open, which this host does not have (build with a toolchain for WASI preview 1)"}},
		{"old WASI", imports("wasi_unstable", "fd_write", i32(4), i32(1)), []string{
			"X_MODULE_IMPORT: imports from wasi_unstable, which belongs to an early version of WASI"}},
		{"WASI preview 2", imports("wasi:io/streams@0.2.0", "read", nil, nil), []string{
			"X_MODULE_IMPORT: imports from wasi:io/streams@0.2.0, which belongs to WASI preview 2, which is for components (build for target wasip1"}},
		{"Go for a browser", imports("gojs", "runtime.wasmExit", i32(1), nil), []string{
			"X_MODULE_IMPORT: imports from gojs, which belongs to Go for a browser (GOOS=js) (build with GOOS=wasip1"}},
		{"wasm-bindgen", imports("__wbindgen_placeholder__", "x", nil, nil), []string{
			"X_MODULE_IMPORT: imports from __wbindgen_placeholder__, which belongs to wasm-bindgen"}},
		{"an undefined symbol", imports("env", "memcpy2", nil, nil), []string{
			"X_MODULE_IMPORT: imports the function env.memcpy2, which this host does not have (it is for another host, or a symbol that the linker did not find)"}},
		{"somebody else's module", imports("acme", "do", nil, nil), []string{
			"X_MODULE_IMPORT: imports acme.do; a host provides runner_v1, wasi_snapshot_preview1 and env only"}},
		{"the host's own module", imports("runner_meter", "tick", nil, i32(1)), []string{
			"X_MODULE_IMPORT: imports from runner_meter, which belongs to the host itself"}},
		{"names that would spoil a terminal", imports("\x1b[31m", "\n", nil, nil), []string{
			`X_MODULE_IMPORT: imports "\x1b[31m"."\n"; a host provides`}},
		{"a memory from outside", handler(func(m *wasmasm.Module) { m.ImportMemory("env", "memory", 1) }), []string{
			"X_MODULE_INVALID: imports the memory env.memory; a host provides functions only",
			"X_MODULE_INVALID: has 2 memories; a handler defines exactly one"}},
		{"no exports", func() *wasmasm.Module { m := wasmasm.New(); m.Memory(1, 0); return m }(), []string{
			"X_MODULE_EXPORT: does not export the function runner_describe, expected () -> i32 (build with one of the SDKs; they export it)",
			"X_MODULE_EXPORT: does not export the function runner_run, expected (i32) -> i32",
			"X_MODULE_EXPORT: does not export its memory as \"memory\" (the linker can export it"}},
		{"a command", func() *wasmasm.Module {
			m := wasmasm.New()
			m.Memory(1, 0)
			m.ExportMemory("memory", 0)
			m.ExportFunc("_start", m.Func(nil, nil, func(*wasmasm.Code) {}))
			return m
		}(), []string{
			"X_MODULE_EXPORT: does not export the function runner_describe, expected () -> i32 (the module is a command (it exports _start): build a library instead (Go: -buildmode=c-shared",
			"X_MODULE_EXPORT: does not export the function runner_run"}},
		{"exports of other types and kinds", func() *wasmasm.Module {
			m := wasmasm.New()
			m.Memory(1, 0)
			m.ExportMemory("runner_run", 0)
			f := m.Func(nil, nil, func(*wasmasm.Code) {})
			m.ExportFunc("memory", f)
			m.ExportFunc("runner_describe", f)
			m.ExportFunc("runner_warm", f)
			m.ExportFunc("_initialize", m.Func(i32(1), nil, func(*wasmasm.Code) {}))
			return m
		}(), []string{
			"X_MODULE_EXPORT: exports _initialize with type (i32) -> (), expected () -> ()",
			"X_MODULE_EXPORT: exports runner_describe with type () -> (), expected () -> i32",
			"X_MODULE_EXPORT: exports runner_run as a memory, expected a function (i32) -> i32",
			"X_MODULE_EXPORT: exports runner_warm with type () -> (), expected () -> i32",
			"X_MODULE_EXPORT: exports memory as a function, expected a memory"}},
		{"all kinds at once", func() *wasmasm.Module {
			m := wasmasm.New()
			m.ImportFunc("acme", "do", nil, nil)
			m.ImportFunc("runner_v9", "do", nil, nil)
			m.Memory(1, 0)
			m.ExportMemory("memory", 0)
			return m
		}(), []string{"X_MODULE_IMPORT: imports acme.do", "X_MODULE_ABI: is built for version 9", "X_MODULE_EXPORT: does not export the function runner_describe", "X_MODULE_EXPORT: does not export the function runner_run"}},
		{"tail calls", handler(func(m *wasmasm.Module) { m.DataCount(); m.RawSection(10, []byte{2, 4, 0, 0x12, 0, 0x0b, 2, 0, 0x0b}) }), []string{
			"X_MODULE_INVALID: uses tail calls; build without the tail-call feature"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := module.Check(build(t, tt.m))
			if err == nil {
				t.Fatal("no problem was found")
			}
			got := strings.Split(err.Error(), "\n")
			for i, line := range got {
				if i >= len(tt.want) || !strings.HasPrefix(line, tt.want[i]) {
					t.Errorf("problem %d: %s", i, line)
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("%d problems, want %d", len(got), len(tt.want))
			}
		})
	}
}

func TestWhatIsNoModule(t *testing.T) {
	for name, tt := range map[string]struct {
		b    []byte
		want string
	}{
		"text":      {[]byte("hello"), "X_MODULE_INVALID: not a WebAssembly module: it does not start with \\0asm"},
		"component": {[]byte("\x00asm\x0d\x00\x01\x00"), "X_MODULE_INVALID: this is a component, not a core module: build a core module, for example with target wasip1"},
		"damaged":   {build(t, handler(nil))[:100], "X_MODULE_INVALID: is not a valid module: length beyond the end"},
		"beyond the limits": {build(t, handler(func(m *wasmasm.Module) { m.Table(wasmasm.FuncRef, 5_000_000, 0) })),
			"X_MODULE_INVALID: is beyond what this host reads: tables of 5000000 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			in := module.Inspect(tt.b)
			if err := in.Err(); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			if in.Report != nil || in.Size != int64(len(tt.b)) || in.Digest == "" {
				t.Errorf("got %+v", in)
			}
		})
	}
}

func TestProblemsAreFoundByCodeAndBounded(t *testing.T) {
	err := module.Check(build(t, handler(func(m *wasmasm.Module) {
		for i := range 500 {
			m.ImportFunc("runner_v1", strings.Repeat("x", i+1), nil, nil)
		}
		m.ImportFunc("acme", "y", nil, nil)
	})))
	if !errors.Is(err, &abi.Error{Code: module.CodeImport}) {
		t.Errorf("not found by its code: %v", err)
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 21 || !strings.Contains(lines[20], "and 481 more problems") {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
	if len(err.Error()) > 8000 {
		t.Errorf("a report of %d bytes", len(err.Error()))
	}
}

func TestResetSaysWhyEachAttemptNeedsANewInstance(t *testing.T) {
	in := module.Inspect(build(t, handler(func(m *wasmasm.Module) {
		m.Global(wasmasm.V128, true, func(c *wasmasm.Code) { c.V128Const([16]byte{}) })
	})))
	if got := in.Reset(); got != "fresh: has a mutable v128 global" {
		t.Errorf("got %q", got)
	}
}
