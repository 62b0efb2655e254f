package host

import (
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

func TestAHandlerRunsWithFreshMemoryEachTime(t *testing.T) {
	f := newFixture(2, 16)
	count := f.GlobalI32(true, 0)
	f.handler("count", func(c *wasmasm.Code) {
		// counts in a global, in memory and in pages; fails unless all are new
		c.GlobalGet(count).I32Const(0).Mem(wasmasm.I32Load, 512).Op(wasmasm.I32Add)
		c.MemorySize().Op(wasmasm.I32Add).I32Const(2).Op(wasmasm.I32Ne).If(wasmasm.Empty).Op(wasmasm.Unreachable).End()
		c.I32Const(1).GlobalSet(count)
		c.I32Const(0).I32Const(1).Mem(wasmasm.I32Store, 512)
		c.I32Const(3).MemoryGrow().Op(wasmasm.Drop)
		c.I32Const(4*65536).I32Const(77).Mem(wasmasm.I32Store, 0)
		f.done(c, `"new"`)
	})
	h := newHost(t, Config{})
	g := load(t, h, f.bytes(t))
	for i := range 20 {
		out := g.Run(t.Context(), attempt("count"), &script{})
		if out.Kind != abi.Done || string(out.Output) != `"new"` {
			t.Fatalf("run %d: %+v", i, out)
		}
		if out.Usage.MemoryBytes != 5<<16 {
			t.Errorf("memory %d", out.Usage.MemoryBytes)
		}
	}
	t.Logf("%+v", h.Stats())
}
