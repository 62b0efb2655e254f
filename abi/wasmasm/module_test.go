package wasmasm_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

func none() []wasmasm.ValType { return nil }

func build(t *testing.T, m *wasmasm.Module) []byte {
	t.Helper()
	b, err := m.Build()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEmptyModuleIsTheHeader(t *testing.T) {
	if got := build(t, wasmasm.New()); hex.EncodeToString(got) != "0061736d01000000" {
		t.Errorf("got %x", got)
	}
}

// The bytes are what wat2wasm makes of
//
//	(module
//	  (import "runner_v1" "output" (func (param i32 i32) (result i32)))
//	  (memory (export "memory") 1)
//	  (func (export "f") (param i32) (result i32) (local i64)
//	    (call 0 (i32.const 16) (i32.const -1)))
//	  (data (i32.const 16) "hi"))
func TestModuleIsEncodedAsTheSpecificationSays(t *testing.T) {
	m := wasmasm.New()
	out := m.ImportFunc(abi.ImportModule, abi.FuncOutput, wasmasm.Types(wasmasm.I32, wasmasm.I32), wasmasm.Types(wasmasm.I32))
	m.Memory(1, 0)
	m.ExportMemory("memory", 0)
	f := m.Func(wasmasm.Types(wasmasm.I32), wasmasm.Types(wasmasm.I32), func(c *wasmasm.Code) {
		if l := c.Local(wasmasm.I64); l != 1 {
			t.Errorf("first local after one parameter is %d", l)
		}
		c.I32Const(16).I32Const(-1).Call(out)
	})
	m.ExportFunc("f", f)
	m.Data(16, []byte("hi"))
	want := "0061736d01000000" +
		"010c0260027f7f017f60017f017f" +
		"021401" + "0972756e6e65725f7631" + "066f7574707574" + "0000" +
		"03020101" +
		"0503010001" +
		"070e02" + "066d656d6f7279" + "0200" + "0166" + "0001" +
		"0a0c010a01017e4110417f10000b" +
		"0b08010041100b026869"
	if got := hex.EncodeToString(build(t, m)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestSameTypeIsWrittenOnce(t *testing.T) {
	m := wasmasm.New()
	if a, b := m.Type(none(), wasmasm.Types(wasmasm.I32)), m.Type(none(), wasmasm.Types(wasmasm.I32)); a != b {
		t.Errorf("types %d and %d", a, b)
	}
	if a, b := m.Type(none(), none()), m.Type(wasmasm.Types(wasmasm.I32), none()); a == b {
		t.Error("different types share an index")
	}
}

func TestInstructionsWithImmediates(t *testing.T) {
	for _, tt := range []struct {
		name string
		emit func(c *wasmasm.Code)
		want string
	}{
		{"i32.const min", func(c *wasmasm.Code) { c.I32Const(-1 << 31) }, "418080808078"},
		{"i64.const 64 needs a second byte for its sign", func(c *wasmasm.Code) { c.I64Const(64) }, "42c000"},
		{"f32.const", func(c *wasmasm.Code) { c.F32Const(1) }, "430000803f"},
		{"f64.const", func(c *wasmasm.Code) { c.F64Const(1) }, "44000000000000f03f"},
		{"block types", func(c *wasmasm.Code) { c.Block(wasmasm.Empty).Loop(wasmasm.Yields(wasmasm.I32)).If(3) }, "0240037f0403"},
		{"br_table", func(c *wasmasm.Code) { c.BrTable(0, 1, 2) }, "0e02000102"},
		{"prefixed operator", func(c *wasmasm.Code) { c.Op(wasmasm.I64TruncSatF64U) }, "fc07"},
		{"load with offset", func(c *wasmasm.Code) { c.Mem(wasmasm.I64Load, 128) }, "29008001"},
		{"memory.init names the segment first", func(c *wasmasm.Code) { c.MemoryInit(5) }, "fc080500"},
		{"simd with a number over 127", func(c *wasmasm.Code) { c.SIMD(0xae) }, "fdae01"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mm := wasmasm.New()
			mm.Func(none(), none(), tt.emit)
			want, _ := hex.DecodeString(tt.want)
			if got := build(t, mm); !bytes.HasSuffix(got, append(want, 0x0b)) {
				t.Errorf("got %x, want it to end in %s0b", got, tt.want)
			}
		})
	}
}

func TestWhatCannotBeEncodedIsAnErrorOfBuild(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		make       func(m *wasmasm.Module)
	}{
		{"import after a function", "import of a.b after a function", func(m *wasmasm.Module) {
			m.Func(none(), none(), func(*wasmasm.Code) {})
			m.ImportFunc("a", "b", none(), none())
		}},
		{"declared without a body", "function 0 has no body", func(m *wasmasm.Module) { m.Declare(none(), none()) }},
		{"two bodies", "no place for a body", func(m *wasmasm.Module) {
			f := m.Func(none(), none(), func(*wasmasm.Code) {})
			m.Define(f, 0, func(*wasmasm.Code) {})
		}},
		{"imported global after a defined one", "after a global was defined", func(m *wasmasm.Module) {
			m.GlobalI32(true, 1)
			m.ImportGlobal("a", "b", wasmasm.I32, false)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := wasmasm.New()
			tt.make(m)
			if _, err := m.Build(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
