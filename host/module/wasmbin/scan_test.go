package wasmbin_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"

	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/module/wasmbin"
)

// sound has a memory and one function, and add is what a test wants of it.
func sound(add func(m *wasmasm.Module)) *wasmasm.Module {
	m := wasmasm.New()
	m.Memory(2, 10)
	m.ExportMemory("memory", 0)
	add(m)
	return m
}

func inFunc(body func(c *wasmasm.Code)) func(m *wasmasm.Module) {
	return func(m *wasmasm.Module) { m.ExportFunc("f", m.Func(nil, nil, body)) }
}

func scan(t *testing.T, m *wasmasm.Module) *wasmbin.Report {
	t.Helper()
	rep, err := wasmbin.Scan(build(t, m))
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// State that copying memory and globals back does not restore.
func TestFreshOnly(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		m          *wasmasm.Module
	}{
		{"nothing special", "", sound(inFunc(func(c *wasmasm.Code) {}))},
		{"memory.grow is undone by shrinking", "", sound(inFunc(func(c *wasmasm.Code) { c.I32Const(1).MemoryGrow().Op(wasmasm.Drop) }))},
		{"numeric mutable globals are copied", "", sound(func(m *wasmasm.Module) {
			m.GlobalI32(true, 1)
			m.Global(wasmasm.I64, true, func(c *wasmasm.Code) { c.I64Const(1) })
			m.Global(wasmasm.F32, true, func(c *wasmasm.Code) { c.F32Const(1) })
			m.Global(wasmasm.F64, true, func(c *wasmasm.Code) { c.F64Const(1) })
		})},
		{"immutable v128 global", "", sound(func(m *wasmasm.Module) {
			m.Global(wasmasm.V128, false, func(c *wasmasm.Code) { c.V128Const([16]byte{}) })
		})},
		{"mutable v128 global", "has a mutable v128 global", sound(func(m *wasmasm.Module) {
			m.Global(wasmasm.V128, true, func(c *wasmasm.Code) { c.V128Const([16]byte{}) })
		})},
		{"mutable funcref global", "has a mutable funcref global", sound(func(m *wasmasm.Module) {
			m.Global(wasmasm.FuncRef, true, func(c *wasmasm.Code) { c.RefNull(wasmasm.FuncRef) })
		})},
		{"mutable externref global", "has a mutable externref global", sound(func(m *wasmasm.Module) {
			m.Global(wasmasm.ExternRef, true, func(c *wasmasm.Code) { c.RefNull(wasmasm.ExternRef) })
		})},
		{"table.get and table.size only read", "", withTable(func(c *wasmasm.Code) { c.I32Const(0).TableGet(0).Op(wasmasm.Drop).TableSize(0).Op(wasmasm.Drop) })},
		{"table.set", "changes tables while it runs (table.set)", withTable(func(c *wasmasm.Code) { c.I32Const(0).RefNull(wasmasm.FuncRef).TableSet(0) })},
		{"table.grow", "changes tables while it runs (table.grow)", withTable(func(c *wasmasm.Code) {
			c.RefNull(wasmasm.FuncRef).I32Const(1).TableGrow(0).Op(wasmasm.Drop)
		})},
		{"table.fill", "changes tables while it runs (table.fill)", withTable(func(c *wasmasm.Code) {
			c.I32Const(0).RefNull(wasmasm.FuncRef).I32Const(1).TableFill(0)
		})},
		{"table.init", "changes tables while it runs (table.init)", withTable(func(c *wasmasm.Code) { c.I32Const(0).I32Const(0).I32Const(0).TableInit(0, 0) })},
		{"table.copy", "changes tables while it runs (table.copy)", withTable(func(c *wasmasm.Code) { c.I32Const(0).I32Const(0).I32Const(0).TableCopy(0, 0) })},
		{"elem.drop", "drops element segments (elem.drop)", withTable(func(c *wasmasm.Code) { c.ElemDrop(0) })},
		{"memory.init without data.drop", "", withData(func(c *wasmasm.Code) { c.I32Const(0).I32Const(0).I32Const(0).MemoryInit(0) })},
		{"data.drop", "drops data segments (data.drop)", withData(func(c *wasmasm.Code) { c.DataDrop(0) })},
		{"several", "changes tables while it runs (table.set, table.copy); drops element segments (elem.drop)", withTable(func(c *wasmasm.Code) {
			c.ElemDrop(0).I32Const(0).I32Const(0).I32Const(0).TableCopy(0, 0).I32Const(0).RefNull(wasmasm.FuncRef).TableSet(0)
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rep := scan(t, tt.m)
			if len(rep.Reject) > 0 {
				t.Fatalf("rejected: %v", rep.Reject)
			}
			if got := strings.Join(rep.FreshOnly, "; "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			compiles(t, tt.m)
		})
	}
}

func withTable(body func(c *wasmasm.Code)) *wasmasm.Module {
	return sound(func(m *wasmasm.Module) {
		m.Table(wasmasm.FuncRef, 4, 0)
		f := m.Func(nil, nil, func(*wasmasm.Code) {})
		m.PassiveElem(f)
		inFunc(body)(m)
	})
}

func withData(body func(c *wasmasm.Code)) *wasmasm.Module {
	return sound(func(m *wasmasm.Module) {
		m.PassiveData([]byte("x"))
		inFunc(body)(m)
	})
}

// compiles checks that what the fixture tests is not its own invalidity.
func compiles(t *testing.T, m *wasmasm.Module) {
	t.Helper()
	if err := validate(build(t, m)); err != nil {
		t.Errorf("the fixture is not valid: %v", err)
	}
	if err := validate(rewrite(t, build(t, m)).Bytes); err != nil {
		t.Errorf("rewritten it is not valid: %v", err)
	}
}

func validate(b []byte) error {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(features))
	defer rt.Close(ctx)
	_, err := rt.CompileModule(ctx, b)
	return err
}

// Modules that must not run: their state is shared, they need what is not
// served, or no instance can be made of them.
func TestReject(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		m          *wasmasm.Module
	}{
		{"no memory", "has no memory of its own", wasmasm.New()},
		{"imported memory", "imports the memory env.memory; a host provides functions only", func() *wasmasm.Module {
			m := wasmasm.New()
			m.ImportMemory("env", "memory", 1)
			return m
		}()},
		{"two memories", "has 2 memories", func() *wasmasm.Module {
			m := wasmasm.New()
			m.Memory(1, 0)
			m.Memory(1, 0)
			return m
		}()},
		{"an imported and an own memory", "has 2 memories", func() *wasmasm.Module {
			m := wasmasm.New()
			m.ImportMemory("env", "memory", 1)
			m.Memory(1, 0)
			return m
		}()},
		{"shared memory", "uses threads", func() *wasmasm.Module {
			m := wasmasm.New()
			m.MemoryFlags(2, 1, 2)
			return m
		}()},
		{"64-bit memory", "uses 64-bit memory", func() *wasmasm.Module {
			m := wasmasm.New()
			m.MemoryFlags(4, 1, 2)
			return m
		}()},
		{"imported table", "imports the table env.table", sound(func(m *wasmasm.Module) { m.ImportTable("env", "table", 1) })},
		{"imported mutable global", "imports the global env.sp", sound(func(m *wasmasm.Module) { m.ImportGlobal("env", "sp", wasmasm.I32, true) })},
		{"imported global", "imports the global env.base", sound(func(m *wasmasm.Module) { m.ImportGlobal("env", "base", wasmasm.I32, false) })},
		{"imported tag", "imports the tag env.oops; uses WebAssembly exception handling", sound(func(m *wasmasm.Module) {
			m.Type(nil, nil)
			m.RawSection(2, []byte{1, 3, 'e', 'n', 'v', 4, 'o', 'o', 'p', 's', 4, 0, 0})
		})},
		{"tag section", "uses WebAssembly exception handling", sound(func(m *wasmasm.Module) { m.RawSection(13, []byte{1, 0, 0}) })},
		{"try_table", "uses WebAssembly exception handling", sound(inFunc(func(c *wasmasm.Code) { c.Raw(0x1f, 0x40, 0).End() }))},
		{"legacy try", "uses WebAssembly exception handling", sound(inFunc(func(c *wasmasm.Code) { c.Raw(0x06, 0x40).End() }))},
		{"exnref", "uses WebAssembly exception handling", sound(func(m *wasmasm.Module) { m.RawSection(1, []byte{1, 0x60, 1, 0x69, 0}) })},
		{"atomic instruction", "uses threads", sound(inFunc(func(c *wasmasm.Code) { c.Raw(0xfe, 3, 0) }))},
		{"return_call", "uses tail calls", sound(inFunc(func(c *wasmasm.Code) { c.Raw(0x12, 0) }))},
		{"return_call_indirect", "uses tail calls", sound(inFunc(func(c *wasmasm.Code) { c.Raw(0x13, 0, 0) }))},
		{"call_ref", "uses typed function references", sound(inFunc(func(c *wasmasm.Code) { c.Raw(0x14, 0) }))},
		{"typed reference", "uses typed function references", sound(func(m *wasmasm.Module) { m.RawSection(1, []byte{1, 0x60, 1, 0x63, 0x70, 0}) })},
		{"typed reference as a block's type", "uses typed function references", sound(inFunc(func(c *wasmasm.Code) { c.Raw(0x02, 0x63, 0x70).End() }))},
		{"table with an initialiser", "tables with initialisers", sound(func(m *wasmasm.Module) { m.RawSection(4, []byte{1, 0x40, 0, 0x70, 0, 1, 0xd0, 0x70, 0x0b}) })},
		{"recursive types", "garbage-collected types", sound(func(m *wasmasm.Module) { m.RawSection(1, []byte{1, 0x4e, 1, 0x60, 0, 0}) })},
		{"GC instruction", "garbage-collected types", sound(inFunc(func(c *wasmasm.Code) { c.Raw(0xfb, 0, 0) }))},
		{"relaxed vector instruction", "uses relaxed SIMD", sound(inFunc(func(c *wasmasm.Code) { c.SIMD(0x100) }))},
		{"data outside memory", "its data segment 1 ends at byte 131073, its memory has 131072 at the start", sound(func(m *wasmasm.Module) {
			m.Data(131071, []byte("x"))
			m.Data(131071, []byte("xy"))
		})},
		{"empty data outside memory", "its data segment 0 ends at byte 131073", sound(func(m *wasmasm.Module) { m.Data(131073, nil) })},
		{"negative data offset", "its data segment 0 ends at byte 4294967296", sound(func(m *wasmasm.Module) { m.Data(-1, []byte("x")) })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rep := scan(t, tt.m)
			if !slices.ContainsFunc(rep.Reject, func(s string) bool { return strings.Contains(s, tt.want) }) {
				t.Errorf("got %q, want one with %q", rep.Reject, tt.want)
			}
			_, err := wasmbin.Rewrite(build(t, tt.m), options)
			if e := (*wasmbin.Error)(nil); !errors.As(err, &e) || e.Kind != wasmbin.Rejected || !strings.Contains(e.Detail, tt.want) {
				t.Errorf("Rewrite: %v", err)
			}
		})
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	raw := func(b ...byte) []byte { return append([]byte("\x00asm\x01\x00\x00\x00"), b...) }
	asm := func(m *wasmasm.Module) []byte { return build(t, m) }
	body := func(b ...byte) []byte { return asm(sound(inFunc(func(c *wasmasm.Code) { c.Raw(b...) }))) }
	for _, tt := range []struct {
		name string
		b    []byte
		kind wasmbin.ErrorKind
		want string
	}{
		{"empty", nil, wasmbin.NotWasm, "not a WebAssembly module"},
		{"text", []byte("(module)"), wasmbin.NotWasm, "not a WebAssembly module"},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), wasmbin.Component, "this is a component, not a core module: build a core module, for example with target wasip1"},
		{"version 2", []byte("\x00asm\x02\x00\x00\x00"), wasmbin.NotWasm, "unknown version 2 of WebAssembly, want 1"},
		{"section longer than the file", raw(1, 9, 0), wasmbin.Malformed, "length beyond the end (at byte 10)"},
		{"unknown section", raw(99, 0), wasmbin.Malformed, "unknown section 99"},
		{"sections out of order", raw(3, 1, 0, 1, 1, 0), wasmbin.Malformed, "the type section is out of order or repeated"},
		{"section twice", raw(1, 1, 0, 1, 1, 0), wasmbin.Malformed, "the type section is out of order or repeated"},
		{"trailing bytes in a section", raw(1, 2, 0, 0), wasmbin.Malformed, "trailing bytes after the type section"},
		{"count beyond the bytes", raw(1, 5, 0xff, 0xff, 0xff, 0xff, 0x0f), wasmbin.Malformed, "more types than bytes"},
		{"overlong integer", raw(1, 6, 0x80, 0x80, 0x80, 0x80, 0x80, 0), wasmbin.Malformed, "integer does not fit 32 bits"},
		{"custom section without a name", raw(0, 1, 5), wasmbin.Malformed, "length beyond the end"},
		{"name not UTF-8", raw(2, 5, 1, 1, 0xff, 0, 0), wasmbin.Malformed, "name is not UTF-8"},
		{"function without code", raw(1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0), wasmbin.Malformed, "1 functions are declared and 0 have code"},
		{"unknown type of an import", raw(2, 7, 1, 1, 'a', 1, 'b', 0, 0), wasmbin.Malformed, "type 0 of 0"},
		{"export of nothing", asm(sound(func(m *wasmasm.Module) { m.ExportFunc("f", 7) })), wasmbin.Malformed, `export "f" names function 7 of 0`},
		{"two exports of one name", asm(sound(func(m *wasmasm.Module) { m.ExportMemory("memory", 0) })), wasmbin.Malformed, `two exports are named "memory"`},
		{"start with a result", asm(sound(func(m *wasmasm.Module) {
			m.Start(m.Func(nil, types(wasmasm.I32), func(c *wasmasm.Code) { c.I32Const(1) }))
		})), wasmbin.Malformed, "the start function has type () -> i32, want () -> ()"},
		{"memory beyond 4 GiB", asm(func() *wasmasm.Module { m := wasmasm.New(); m.Memory(65537, 0); return m }()), wasmbin.Malformed, "memory 0 is larger than 65536 pages"},
		{"maximum below minimum", asm(func() *wasmasm.Module { m := wasmasm.New(); m.Memory(2, 1); return m }()), wasmbin.Malformed, "maximum is below the minimum"},
		{"data without memory", asm(func() *wasmasm.Module { m := wasmasm.New(); m.Data(0, []byte("x")); return m }()), wasmbin.Malformed, "a data segment without a memory"},
		{"data count that lies", asm(sound(func(m *wasmasm.Module) { m.RawSection(12, []byte{3}) })), wasmbin.Malformed, "the data count section says 3 segments, there are 0"},
		{"huge tables", asm(sound(func(m *wasmasm.Module) { m.Table(wasmasm.FuncRef, 900_000, 0); m.Table(wasmasm.FuncRef, 900_000, 0) })), wasmbin.TooComplex, "tables of 1800000 entries"},
		{"unknown local", body(0x20, 0, 0x1a), wasmbin.Malformed, "function 0: local 0 of 0"},
		// The index that the fuel gets.
		{"global equal to the count", body(0x23, 0, 0x1a), wasmbin.Malformed, "global 0 of 0"},
		{"function equal to the count", body(0x10, 1), wasmbin.Malformed, "function 1 of 1"},
		{"type equal to the count", body(0x02, 1, 0x0b), wasmbin.Malformed, "block of type 1 of 1"},
		{"call_indirect without a table", body(0x41, 0, 0x11, 0, 0), wasmbin.Malformed, "table 0 of 0"},
		{"ref.func of an undeclared function", asm(sound(func(m *wasmasm.Module) {
			f := m.Func(nil, nil, func(c *wasmasm.Code) { c.RefFunc(c.Self).Op(wasmasm.Drop) })
			m.Start(f)
		})), wasmbin.Malformed, "ref.func of function 0, which nothing declares"},
		{"memory.init without data count", body(0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 8, 0, 0), wasmbin.Malformed, "data segment 0, which the data count section does not announce"},
		{"memory.fill of memory 1", body(0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 11, 1), wasmbin.Malformed, "a memory other than 0"},
		{"load from memory 1", body(0x41, 0, 0x28, 0x42, 1, 0, 0x1a), wasmbin.Malformed, "a memory other than 0"},
		{"branch out of the function", body(0x0c, 1), wasmbin.Malformed, "branch out of the function"},
		{"else without if", body(0x05), wasmbin.Malformed, "else without if"},
		{"code after the end", body(0x0b, 0x01), wasmbin.Malformed, "trailing bytes after the last end of the function"},
		{"no end", body(0x02, 0x40), wasmbin.Malformed, "unexpected end"},
		{"unknown instruction", body(0xff), wasmbin.Malformed, "unknown instruction 0xff"},
		{"unknown bulk instruction", body(0xfc, 18), wasmbin.Malformed, "unknown instruction 0xfc 18"},
		{"select of two types", body(0x1c, 2, 0x7f, 0x7f), wasmbin.Malformed, "select with other than one type"},
		// wazero reads the number of a vector instruction as one byte.
		{"vector instruction in a long form", body(0xfd, 0x8c, 0x00), wasmbin.Malformed, "not encoded in its shortest form"},
		{"too many locals", asm(sound(inFunc(func(c *wasmasm.Code) {
			for range 60_000 {
				c.Local(wasmasm.I32)
			}
		}))), wasmbin.TooComplex, "more than 49990 locals"},
		{"locals in one group", asm(sound(func(m *wasmasm.Module) {
			m.Func(nil, nil, func(*wasmasm.Code) {})
			m.RawSection(10, []byte{1, 8, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x7f, 0x0b})
		})), wasmbin.TooComplex, "more than 49990 locals"},
		{"nesting", asm(sound(inFunc(func(c *wasmasm.Code) {
			for range 30_000 {
				c.Block(wasmasm.Empty)
			}
		}))), wasmbin.TooComplex, "blocks are nested more than 10000 deep"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for what, f := range map[string]func() error{
				"Scan":    func() error { _, err := wasmbin.Scan(tt.b); return err },
				"Rewrite": func() error { _, err := wasmbin.Rewrite(tt.b, options); return err },
			} {
				err := f()
				if e := (*wasmbin.Error)(nil); !errors.As(err, &e) || e.Kind != tt.kind || !strings.Contains(e.Error(), tt.want) {
					t.Errorf("%s: got %v, want %s: %q", what, err, tt.kind, tt.want)
				}
			}
		})
	}
}

func TestReportDescribesTheModule(t *testing.T) {
	m := wasmasm.New()
	f := m.ImportFunc("env", "f", types(wasmasm.I32, wasmasm.I64), types(wasmasm.F64))
	m.Memory(3, 70)
	m.ExportMemory("memory", 0)
	g := m.GlobalI32(true, 1)
	m.ExportGlobal("g", g)
	start := m.Func(nil, nil, func(c *wasmasm.Code) { c.I32Const(0).I32Const(0).I32Const(0).MemoryFill() })
	m.ExportFunc("go", start)
	m.ExportFunc("again", f)
	m.Start(start)
	m.Data(8, []byte("abc"))
	m.PassiveData([]byte("de"))
	got := scan(t, m)
	want := &wasmbin.Report{
		Imports: []wasmbin.Import{{Module: "env", Name: "f", Type: "(i32 i64) -> f64"}},
		Exports: []wasmbin.Export{
			{Name: "memory", Kind: wasmbin.KindMemory}, {Name: "g", Kind: wasmbin.KindGlobal},
			{Name: "go", Type: "() -> ()"}, {Name: "again", Type: "(i32 i64) -> f64"},
		},
		MemoryMin: 3, MemoryMax: 70, Start: true, HostData: true,
		Functions: 1, Instructions: 5, CodeBytes: got.CodeBytes, DataSegments: 2, DataBytes: 5,
		Features: []string{"bulk-memory"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestHostDataOnlyWhereTheOffsetsAreKnownAndNothingNamesASegment(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    *wasmasm.Module
		want []wasmbin.Segment // nil: the data stays in the module
	}{
		{"constant", sound(func(m *wasmasm.Module) { m.Data(7, []byte("a")); m.Data(7, []byte("b")) }),
			[]wasmbin.Segment{{Offset: 7, Bytes: []byte("a")}, {Offset: 7, Bytes: []byte("b")}}},
		{"extended constant", sound(func(m *wasmasm.Module) {
			m.DataAt(func(c *wasmasm.Code) { c.I32Const(6).I32Const(7).Op(wasmasm.I32Mul).I32Const(2).Op(wasmasm.I32Sub) }, []byte("a"))
		}), []wasmbin.Segment{{Offset: 40, Bytes: []byte("a")}}},
		{"passive and unused", withData(func(*wasmasm.Code) {}), []wasmbin.Segment{}},
		{"empty segments", sound(func(m *wasmasm.Module) { m.Data(7, nil) }), []wasmbin.Segment{}},
		{"memory.init", withData(func(c *wasmasm.Code) { c.I32Const(0).I32Const(0).I32Const(1).MemoryInit(0) }), nil},
		{"data.drop", withData(func(c *wasmasm.Code) { c.DataDrop(0) }), nil},
		{"offset in a global", sound(func(m *wasmasm.Module) {
			g := m.GlobalI32(false, 9)
			m.Data(0, []byte("x"))
			m.DataAt(func(c *wasmasm.Code) { c.GlobalGet(g) }, []byte("a"))
		}), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rep := scan(t, tt.m)
			rw := rewrite(t, build(t, tt.m))
			if rep.HostData != (tt.want != nil) {
				t.Errorf("HostData is %v", rep.HostData)
			}
			if d := cmp.Diff(tt.want, rw.Data); d != "" {
				t.Error(d)
			}
		})
	}
}
