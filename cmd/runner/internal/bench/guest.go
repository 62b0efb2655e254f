package bench

import (
	"encoding/json"
	"fmt"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// StepsPerRun is how many durable steps one run of the handler "steps" makes.
const StepsPerRun = 5

// The handlers that a guest of a benchmark has.
const (
	handlerNoop  = "noop"  // answers at once
	handlerSteps = "steps" // makes StepsPerRun steps that do nothing
	handlerHello = "hello" // logs startedLine before anything else
)

// startedLine is what the handler "hello" logs.
const startedLine = "started"

// Guest assembles the smallest module that has the three handlers: what is left
// to measure is the runner.
func Guest() ([]byte, error) {
	names := []string{handlerNoop, handlerSteps, handlerHello}
	d := abi.Description{ABI: abi.Version, SDK: "wasmasm/1.0"}
	for _, n := range names {
		d.Handlers = append(d.Handlers, abi.Handler{Name: n})
	}
	description, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("assemble the guest: %w", err)
	}
	const i32 = wasmasm.I32
	one := wasmasm.Types(i32)
	m := wasmasm.New()
	begin := m.ImportFunc(abi.ImportModule, abi.FuncStepBegin, wasmasm.Types(i32, i32, i32), one)
	end := m.ImportFunc(abi.ImportModule, abi.FuncStepEnd, wasmasm.Types(i32, i32), one)
	output := m.ImportFunc(abi.ImportModule, abi.FuncOutput, wasmasm.Types(i32, i32), one)
	log := m.ImportFunc(abi.ImportModule, abi.FuncLog, wasmasm.Types(i32, i32, i32), nil)
	m.Memory(1, 1)
	m.ExportMemory(abi.ExportMemory, 0)

	const base = 1024
	var data []byte
	text := func(c *wasmasm.Code, s string) *wasmasm.Code {
		at := base + int32(len(data))
		data = append(data, s...)
		return c.I32Const(at).I32Const(int32(len(s)))
	}
	m.ExportFunc(abi.ExportDescribe, m.Func(nil, one, func(c *wasmasm.Code) {
		text(c, string(description)).Call(output)
	}))
	m.ExportFunc(abi.ExportRun, m.Func(one, one, func(c *wasmasm.Code) {
		handler := func(index int32, body func()) {
			c.LocalGet(0).I32Const(index).Op(wasmasm.I32Eq).If(wasmasm.Empty)
			body()
			c.End()
		}
		handler(1, func() {
			for i := range StepsPerRun {
				text(c, fmt.Sprintf("step-%d", i+1)).I32Const(0).Call(begin)
				c.Op(wasmasm.I32Eqz).If(wasmasm.Empty)
				text(c, `{"ok":true}`).Call(end).Op(wasmasm.Drop)
				c.End()
			}
		})
		handler(2, func() {
			c.I32Const(int32(abi.LevelInfo))
			text(c, startedLine).Call(log)
		})
		text(c, "null").Call(output)
	}))
	m.Data(base, data)
	return m.Build()
}
