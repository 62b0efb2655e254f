package wasmbin_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/module/wasmbin"
)

func TestRewriteExportsFuelGlobalsAndStart(t *testing.T) {
	m := sound(func(m *wasmasm.Module) {
		count := m.GlobalI32(true, 7)
		m.GlobalI32(false, 1)
		m.Global(wasmasm.F64, true, func(c *wasmasm.Code) { c.F64Const(2.5) })
		m.Global(wasmasm.V128, true, func(c *wasmasm.Code) { c.V128Const([16]byte{1}) })
		m.Global(wasmasm.I64, true, func(c *wasmasm.Code) { c.I64Const(-1) })
		m.Data(10, []byte("data"))
		m.Start(m.Func(types(), types(), func(c *wasmasm.Code) { c.GlobalGet(count).I32Const(1).Op(wasmasm.I32Add).GlobalSet(count) }))
	})
	rw := rewrite(t, build(t, m))
	if d := cmp.Diff([]string{"__runner_global0", "__runner_global2", "__runner_global4"}, rw.Globals); d != "" {
		t.Error(d)
	}
	mod := instance(t, wazero.NewRuntimeConfig(), rw.Bytes, &meterOf{quantum: 100})
	get := func(name string) uint64 { return mod.ExportedGlobal(name).Get() }
	if got := get(rw.Globals[0]); got != 7 {
		t.Errorf("the start function ran by itself: global is %d", got)
	}
	if got := get(rw.Fuel); got != 0 {
		t.Errorf("fuel starts at %d", got)
	}
	if got := get(rw.Globals[2]); int64(got) != -1 {
		t.Errorf("global 4 is %d", int64(got))
	}
	if _, err := mod.ExportedFunction(rw.Start).Call(context.Background()); err != nil || get(rw.Globals[0]) != 8 {
		t.Errorf("start: %v, global is %d", err, get(rw.Globals[0]))
	}
	mod.ExportedGlobal(rw.Globals[1]).(api.MutableGlobal).Set(api.EncodeF64(9))
	if got := api.DecodeF64(get(rw.Globals[1])); got != 9 {
		t.Errorf("global 2 is %v after it was set to 9", got)
	}
	if b, _ := mod.Memory().Read(10, 4); !bytes.Equal(b, make([]byte, 4)) {
		t.Errorf("memory has %q although the data is the host's to apply", b)
	}
}

func TestRewriteTakesAnotherPrefixWhereTheModuleUsesIt(t *testing.T) {
	m := sound(func(m *wasmasm.Module) {
		g := m.GlobalI32(true, 7)
		m.ExportGlobal("__runner_fuel", g)
		m.ExportGlobal("__runner1x", g)
	})
	rw := rewrite(t, build(t, m))
	if rw.Fuel != "__runner2_fuel" || rw.Globals[0] != "__runner2_global0" {
		t.Errorf("fuel %q, globals %q", rw.Fuel, rw.Globals)
	}
	if err := validate(rw.Bytes); err != nil {
		t.Error(err)
	}
}

func TestRewriteRefusesTheReservedModule(t *testing.T) {
	m := wasmasm.New()
	m.ImportFunc("runner_meter", "tick", types(), types(wasmasm.I32))
	m.Memory(1, 0)
	_, err := wasmbin.Rewrite(build(t, m), options)
	var e *wasmbin.Error
	if !errors.As(err, &e) || e.Kind != wasmbin.Rejected || !strings.Contains(e.Detail, "imports runner_meter.tick, which is reserved for the host") {
		t.Errorf("got %v", err)
	}
}

func TestRewriteLiftsTheMemoryMaximumAndBoundsTables(t *testing.T) {
	m := sound(func(m *wasmasm.Module) {
		m.Table(wasmasm.FuncRef, 10, 0)
		m.Table(wasmasm.ExternRef, 5, 20)
		m.ExportTable("t", 0)
	})
	raw := build(t, m)
	rw := rewrite(t, raw)
	if rw.Report.MemoryMin != 2 || rw.Report.MemoryMax != 10 {
		t.Errorf("the original's memory is %d to %d pages", rw.Report.MemoryMin, rw.Report.MemoryMax)
	}
	for _, p := range split(t, rw.Bytes) {
		switch p.id {
		case 4: // (1,000,000-15)/2 more than the minimum, and what the module says
			if want := []byte{2, 0x70, 1, 10, 0xa2, 0xc2, 0x1e, 0x6f, 1, 5, 20}; !bytes.Equal(p.body, want) {
				t.Errorf("tables: %x, want %x", p.body, want)
			}
		case 5:
			if want := []byte{1, 1, 2, 0x80, 0x80, 4}; !bytes.Equal(p.body, want) {
				t.Errorf("memory: %x, want %x", p.body, want)
			}
		}
	}
}

func TestRewriteKeepsFunctionNamesAndDropsOtherCustomSections(t *testing.T) {
	m := wasmasm.New()
	imp := m.ImportFunc("test", "twice", types(wasmasm.I32), types(wasmasm.I32))
	m.Memory(1, 0)
	f := m.Func(types(), types(), func(c *wasmasm.Code) { c.Op(wasmasm.Unreachable) })
	m.ExportFunc("f", f)
	m.Custom("producers", []byte("clang"))
	long := strings.Repeat("ü", 200)
	m.Names("mod", wasmasm.FuncName{Func: imp, Name: "twice"}, wasmasm.FuncName{Func: f, Name: long})
	var customs []part
	for _, p := range split(t, rewrite(t, build(t, m)).Bytes) {
		if p.id == 0 {
			customs = append(customs, p)
		}
	}
	if len(customs) != 1 {
		t.Fatalf("%d custom sections", len(customs))
	}
	// The imported function keeps index 0, ours goes from 1 to 2, behind the tick.
	want := "\x04name\x00\x04\x03mod\x01\x89\x02\x02\x00\x05twice\x02\xfe\x01" + strings.Repeat("ü", 127)
	if got := string(customs[0].body); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRewriteDropsABrokenNameSection(t *testing.T) {
	for name, body := range map[string][]byte{
		"a function that is not there": {1, 5, 1, 9, 2, 'a', 'b'},
		"more names than bytes":        {1, 5, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"a length beyond the end":      {1, 200},
	} {
		t.Run(name, func(t *testing.T) {
			m := sound(func(m *wasmasm.Module) { m.Custom("name", body) })
			rw := rewrite(t, build(t, m))
			if bytes.Contains(rw.Bytes, []byte("name")) {
				t.Error("it is still there")
			}
			if err := validate(rw.Bytes); err != nil {
				t.Error(err)
			}
		})
	}
}

// The same bytes and options give the same module: it is the key of the cache.
func TestRewriteIsDeterministic(t *testing.T) {
	for seed := range uint64(5) {
		b := build(t, generate(seed))
		if !bytes.Equal(rewrite(t, b).Bytes, rewrite(t, b).Bytes) {
			t.Errorf("seed %d: two rewrites differ", seed)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	raw := build(b, generate(7))
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := wasmbin.Scan(raw); err != nil {
			b.Fatal(err)
		}
	}
}
