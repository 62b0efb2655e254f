package wasmbin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/module/wasmbin"
)

// everyInstruction has a function for each class of instruction of WebAssembly
// 2.0, most of it in dead code, so that mutation meets every encoding.
func everyInstruction(tb testing.TB) []byte {
	m := wasmasm.New()
	imp := m.ImportFunc("test", "twice", types(wasmasm.I32), types(wasmasm.I32))
	m.Memory(1, 3)
	m.ExportMemory("memory", 0)
	m.Table(wasmasm.FuncRef, 4, 9)
	m.Table(wasmasm.ExternRef, 1, 0)
	g := m.GlobalI32(true, 5)
	m.Global(wasmasm.FuncRef, false, func(c *wasmasm.Code) { c.RefFunc(imp) })
	m.Data(100, []byte("active"))
	seg := m.PassiveData([]byte("passive"))
	start := m.Func(nil, nil, func(c *wasmasm.Code) { c.Op(wasmasm.Nop) })
	m.Elem(1, imp, start)
	m.RawElem(2, 0, 0x41, 0, 0x0b, 0, 1, 1)                         // table index and kind
	m.RawElem(4, 0x41, 2, 0x0b, 2, 0xd2, 1, 0x0b, 0xd0, 0x70, 0x0b) // expressions
	m.RawElem(7, 0x70, 1, 0xd2, 0, 0x0b)                            // declared expressions
	el := m.PassiveElem(start)
	m.DeclareElem(start)
	m.Start(start)
	n := 0
	add := func(params, results []wasmasm.ValType, body func(c *wasmasm.Code)) {
		m.ExportFunc("f"+string(rune('a'+n)), m.Func(params, results, body))
		n++
	}
	add(types(wasmasm.I32), types(wasmasm.I32), func(c *wasmasm.Code) { // control
		c.Block(wasmasm.Yields(wasmasm.I32)).LocalGet(0).LocalGet(0).BrIf(0)
		c.Loop(wasmasm.Empty).LocalGet(0).I32Const(1).Op(wasmasm.I32Sub).LocalTee(0).BrIf(0).End()
		c.LocalGet(0).If(wasmasm.Empty).LocalGet(0).Op(wasmasm.Return).Else().Op(wasmasm.Nop).End()
		c.LocalGet(0).BrTable(0, 0, 1).End().Call(imp)
	})
	add(nil, nil, func(c *wasmasm.Code) { // multi-value loop, indirect call
		c.I32Const(3).Loop(wasmasm.BlockType(m.Type(types(wasmasm.I32), types(wasmasm.I32)))).I32Const(1).Op(wasmasm.I32Sub)
		c.GlobalGet(g).I32Const(-1).Op(wasmasm.I32Add).GlobalSet(g).GlobalGet(g).BrIf(0).End().I32Const(1).CallIndirect(types(wasmasm.I32), types(wasmasm.I32)).Op(wasmasm.Drop)
	})
	add(nil, nil, func(c *wasmasm.Code) { // memory
		for op := wasmasm.I32Load; op <= wasmasm.I64Load32U; op++ {
			c.I32Const(8).Mem(op, 3).Op(wasmasm.Drop)
		}
		c.I32Const(0).I32Const(1).I32Const(2).MemoryInit(seg).I32Const(0).I32Const(1).I32Const(70).MemoryCopy().I32Const(0).I32Const(1).I32Const(600).MemoryFill()
		c.DataDrop(seg).MemorySize().MemoryGrow().Op(wasmasm.Drop)
	})
	add(nil, nil, func(c *wasmasm.Code) { // tables and references
		c.I32Const(0).I32Const(0).I32Const(1).TableInit(el, 0).ElemDrop(el).I32Const(0).I32Const(1).I32Const(2).TableCopy(0, 0)
		c.I32Const(0).TableGet(0).Op(wasmasm.RefIsNull, wasmasm.Drop).I32Const(1).RefFunc(start).TableSet(0)
		c.I32Const(0).RefNull(wasmasm.ExternRef).I32Const(1).TableFill(1).TableSize(1).Op(wasmasm.Drop)
		c.RefNull(wasmasm.FuncRef).RefNull(wasmasm.FuncRef).I32Const(1).SelectT(wasmasm.FuncRef).Op(wasmasm.Drop)
	})
	add(nil, nil, func(c *wasmasm.Code) { // every operator, in dead code
		c.Op(wasmasm.Unreachable)
		for op := wasmasm.I32Eqz; op <= wasmasm.I64Extend32S; op++ {
			c.Op(op, wasmasm.Drop)
		}
		for op := wasmasm.I32TruncSatF32S; op <= wasmasm.I64TruncSatF64U; op++ {
			c.Op(op, wasmasm.Drop)
		}
		c.F32Const(1).Op(wasmasm.Drop).F64Const(-0.5).Op(wasmasm.Drop).I64Const(-1 << 63).Op(wasmasm.Drop)
	})
	add(nil, types(wasmasm.V128), func(c *wasmasm.Code) { // vectors
		c.I32Const(0).SIMD(0, 4, 0)                                                                            // v128.load
		c.V128Const([16]byte{9}).SIMD(13, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)                // shuffle
		c.I32Const(16).V128Const([16]byte{}).SIMD(84, 0, 0, 3).SIMD(0xae)                                      // load8_lane, i32x4.add
		c.SIMD(29, 1).Op(wasmasm.Drop).V128Const([16]byte{1}).I32Const(0).V128Const([16]byte{}).SIMD(11, 0, 0) // extract_lane, store
	})
	m.Names("every", wasmasm.FuncName{Func: start, Name: "start"})
	m.Custom("producers", []byte("x"))
	return build(tb, m)
}

func TestEveryInstructionIsKnown(t *testing.T) {
	b := everyInstruction(t)
	if err := validate(b); err != nil {
		t.Fatalf("the fixture is not valid: %v", err)
	}
	if err := validate(rewrite(t, b).Bytes); err != nil {
		t.Fatalf("rewritten it is not valid: %v", err)
	}
	checkModule(t, b)
}

// stricter are the encodings that wazero takes and Scan refuses as malformed.
var stricter = []string{
	"shortest form",        // a vector instruction whose number wazero reads as one byte
	"not a reference type", // ref.null of a type index, which wazero takes without its feature
	"signed integer is too long",
	"unknown value type",
	"unknown block type",
}

// checkModule holds Scan and Rewrite against wazero for any bytes at all:
//
//   - neither fails in itself;
//   - what Scan calls malformed in the code, wazero refuses too;
//   - rewritten code is valid if and only if the original is;
//   - small modules do the same rewritten, and can be stopped.
func checkModule(t *testing.T, b []byte) {
	rep, err := wasmbin.Scan(b)
	rw, err2 := wasmbin.Rewrite(b, options)
	if err != nil {
		var e *wasmbin.Error
		if !errors.As(err, &e) || e.Detail == "" || e.Kind == wasmbin.Internal {
			t.Fatalf("Scan: %v", err)
		}
		if err2 == nil {
			t.Fatalf("Scan says %v, Rewrite does not", err)
		}
		// Only problems in the code are put to wazero: it allocates what the
		// counts of other sections claim.
		inCode := e.Kind == wasmbin.Malformed && strings.HasPrefix(e.Detail, "function ") && !strings.Contains(e.Detail, "locals")
		if inCode && validate(withoutCustom(t, b)) == nil && !containsAny(e.Detail, stricter) {
			t.Fatalf("wazero accepts what Scan calls malformed: %v", err)
		}
		return
	}
	if e := (*wasmbin.Error)(nil); err2 != nil && (!errors.As(err2, &e) || e.Kind != wasmbin.Rejected) {
		t.Fatalf("Scan accepts, Rewrite says %v", err2)
	}
	if err2 != nil {
		return
	}
	if len(rep.Reject) > 0 {
		t.Fatalf("Rewrite took what Scan rejects: %v", rep.Reject)
	}
	// wazero refuses broken name sections; by the specification they mean nothing.
	b = withoutCustom(t, b)
	valid, validRewritten := validate(b), validate(rw.Bytes)
	if (valid == nil) != (validRewritten == nil) {
		t.Fatalf("the original: %v\nrewritten: %v", valid, validRewritten)
	}
	if valid != nil || rep.MemoryMin > 16 || rep.MemoryMax == 0 || strings.Contains(strings.Join(rep.FreshOnly, " "), "table.grow") {
		return
	}
	for _, im := range rep.Imports {
		if im.Module != "test" || im.Name != "twice" || im.Type != "(i32) -> i32" {
			return
		}
	}
	pages := max(rep.MemoryMin, min(rep.MemoryMax, 16))
	if _, _, err := compare(compareParams{config: engines(pages)["interpreter"], raw: b, rw: rw, quantum: uint64(len(b) % 50), patience: 300}); err != nil {
		t.Fatal(err)
	}
}

func containsAny(s string, subs []string) bool {
	for _, sub := range subs {
		if strings.Contains(s, sub) {
			return true
		}
	}
	return false
}

func FuzzRewrite(f *testing.F) {
	f.Add(kernelModule(f))
	f.Add(everyInstruction(f))
	for seed := range uint64(12) {
		f.Add(build(f, generate(seed)))
	}
	f.Add([]byte("\x00asm\x0d\x00\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 1<<16 {
			checkModule(t, b)
		}
	})
}
