package bench

import (
	"encoding/json"
	"fmt"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// StepsPerRun is how many durable steps one run of the steps guest makes.
const StepsPerRun = 5

// StepsModule is the smallest module whose handler "steps" makes StepsPerRun
// durable steps: what is left to measure is the host call and the store.
func StepsModule() ([]byte, error) {
	const (
		base = 1024
		text = `{"ok":true}`
	)
	description, err := json.Marshal(abi.Description{ABI: abi.Version, SDK: "wasmasm/1.0", Handlers: []abi.Handler{{Name: "steps"}}})
	if err != nil {
		return nil, fmt.Errorf("assemble the steps guest: %w", err)
	}
	m := wasmasm.New()
	i32 := wasmasm.I32
	imported := func(name string, params ...wasmasm.ValType) wasmasm.Func {
		return m.ImportFunc(abi.ImportModule, name, params, wasmasm.Types(i32))
	}
	begin := imported(abi.FuncStepBegin, i32, i32, i32)
	end := imported(abi.FuncStepEnd, i32, i32)
	output := imported(abi.FuncOutput, i32, i32)
	m.Memory(1, 1)
	m.ExportMemory(abi.ExportMemory, 0)

	data := []byte(nil)
	put := func(b string) (at, n int32) {
		at = base + int32(len(data))
		data = append(data, b...)
		return at, int32(len(b))
	}
	describeAt, describeLen := put(string(description))
	textAt, textLen := put(text)
	m.ExportFunc(abi.ExportDescribe, m.Func(nil, wasmasm.Types(i32), func(c *wasmasm.Code) {
		c.I32Const(describeAt).I32Const(describeLen).Call(output)
	}))
	m.ExportFunc(abi.ExportRun, m.Func(wasmasm.Types(i32), wasmasm.Types(i32), func(c *wasmasm.Code) {
		for i := range StepsPerRun {
			at, n := put(fmt.Sprintf("step-%d", i+1))
			c.I32Const(at).I32Const(n).I32Const(0).Call(begin)
			c.Op(wasmasm.I32Eqz).If(wasmasm.Empty)
			c.I32Const(textAt).I32Const(textLen).Call(end).Op(wasmasm.Drop)
			c.End()
		}
		c.I32Const(textAt).I32Const(textLen).Call(output)
	}))
	m.Data(base, data)
	return m.Build()
}
