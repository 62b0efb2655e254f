package main

import (
	"encoding/json"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// Handler is the name of the module's only handler.
const Handler = "noop"

// Module is the smallest handler there can be: it reads nothing, does nothing
// and answers null. It is what a module must have and nothing else, so it shows
// the contract at a glance, and measures what the runner itself costs.
//
// In the text format it is
//
//	(module
//	  (import "runner_v1" "output" (func $output (param i32 i32) (result i32)))
//	  (memory (export "memory") 1 1)
//	  (data (i32.const 16) "{\"abi\":1,…}null")
//	  (func (export "runner_describe") (result i32)
//	    (call $output (i32.const 16) (i32.const …)))
//	  (func (export "runner_run") (param i32) (result i32)
//	    (call $output (i32.const …) (i32.const 4))))
//
// output answers 0, which is what both functions are to return.
func Module() ([]byte, error) {
	describe, err := json.Marshal(abi.Description{
		ABI: abi.Version, SDK: "wasmasm", Handlers: []abi.Handler{{Name: Handler}},
	})
	if err != nil {
		return nil, err
	}
	const base = 16
	result := []byte("null")

	m := wasmasm.New()
	i32 := wasmasm.Types(wasmasm.I32)
	output := m.ImportFunc(abi.ImportModule, abi.FuncOutput, wasmasm.Types(wasmasm.I32, wasmasm.I32), i32)
	m.Memory(1, 1)
	m.ExportMemory(abi.ExportMemory, 0)
	m.Data(base, append(describe, result...))
	m.ExportFunc(abi.ExportDescribe, m.Func(nil, i32, func(c *wasmasm.Code) {
		c.I32Const(base).I32Const(int32(len(describe))).Call(output)
	}))
	m.ExportFunc(abi.ExportRun, m.Func(i32, i32, func(c *wasmasm.Code) {
		c.I32Const(base + int32(len(describe))).I32Const(int32(len(result))).Call(output)
	}))
	return m.Build()
}
