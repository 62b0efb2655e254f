// Package wasmasm assembles small WebAssembly modules from Go code: the
// smallest handlers, fixtures that break a rule on purpose and kernels for
// benchmarks, with no toolchain installed.
//
// It owns the binary encoding of a core module. It checks almost nothing: a
// module that no runtime accepts is a legitimate thing to assemble here, and
// the runtime says what is wrong with it. Only what has no encoding at all (an
// import after a function, a body for a function twice) is an error, kept until
// Module.Build returns it.
//
//	m := wasmasm.New()
//	output := m.ImportFunc(abi.ImportModule, abi.FuncOutput, wasmasm.Types(wasmasm.I32, wasmasm.I32), wasmasm.Types(wasmasm.I32))
//	m.Memory(1, 1)
//	m.ExportMemory("memory", 0)
//	m.Data(16, []byte(`{"ok":true}`))
//	run := m.Func(wasmasm.Types(wasmasm.I32), wasmasm.Types(wasmasm.I32), func(c *wasmasm.Code) {
//		c.I32Const(16).I32Const(11).Call(output)
//	})
//	m.ExportFunc("runner_run", run)
//	bytes, err := m.Build()
//
// A Module is for one goroutine.
package wasmasm
