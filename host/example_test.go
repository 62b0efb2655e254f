package host_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host"
)

// A module is loaded once and run as often as there are attempts. What its
// steps and sleeps mean is the abi.Calls of each attempt; here one that keeps a
// run in memory.
func ExampleHost() {
	ctx := context.Background()
	h, err := host.New(ctx, host.Config{MemoryLimit: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close(ctx)
	guest, err := h.Load(ctx, host.LoadParams{Bytes: module()})
	if err != nil {
		log.Fatal(err)
	}
	calls := abitest.NewMemory(abitest.Config{})
	out := guest.Run(ctx, calls.Attempt("noop", []byte(`{"org":"acme"}`)), calls)
	fmt.Println(out.Kind, string(out.Output))
	// Output: done null
}

// module is one with a handler that does nothing. Others come from a file; see
// ReadModule.
func module() []byte {
	const description = `{"abi":1,"sdk":"none","handlers":[{"name":"noop"}]}`
	i32 := wasmasm.I32
	m := wasmasm.New()
	output := m.ImportFunc(abi.ImportModule, abi.FuncOutput, wasmasm.Types(i32, i32), wasmasm.Types(i32))
	m.Memory(1, 1)
	m.ExportMemory(abi.ExportMemory, 0)
	m.Data(16, []byte(description+"null"))
	m.ExportFunc(abi.ExportDescribe, m.Func(nil, wasmasm.Types(i32), func(c *wasmasm.Code) {
		c.I32Const(16).I32Const(int32(len(description))).Call(output)
	}))
	m.ExportFunc(abi.ExportRun, m.Func(wasmasm.Types(i32), wasmasm.Types(i32), func(c *wasmasm.Code) {
		c.I32Const(16 + int32(len(description))).I32Const(4).Call(output)
	}))
	b, err := m.Build()
	if err != nil {
		log.Fatal(err)
	}
	return b
}
