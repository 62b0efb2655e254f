package wasmbin_test

import (
	"math/rand/v2"

	"github.com/jobrunner/runner/abi/wasmasm"
)

// generator writes random valid modules: everything that a walk over code has
// to understand, in no sensible order. The same seed gives the same module.
type generator struct {
	rnd *rand.Rand
	m   *wasmasm.Module

	funcs   []genFunc // callable so far, by index
	globals []genGlobal
	data    uint32
	elem    uint32
	fuel    int // instructions left for the current function
}

type genFunc struct {
	f               wasmasm.Func
	params, results []wasmasm.ValType
}

type genGlobal struct {
	g wasmasm.Global
	t wasmasm.ValType
}

var numeric = []wasmasm.ValType{wasmasm.I32, wasmasm.I64, wasmasm.F32, wasmasm.F64}

func (g *generator) typ() wasmasm.ValType { return numeric[g.rnd.IntN(len(numeric))] }

func (g *generator) types(most int) []wasmasm.ValType {
	ts := make([]wasmasm.ValType, g.rnd.IntN(most+1))
	for i := range ts {
		ts[i] = g.typ()
	}
	return ts
}

// generate is a module with a memory, a table, globals and functions, all exported.
func generate(seed uint64) *wasmasm.Module {
	g := &generator{rnd: rand.New(rand.NewPCG(seed, 1)), m: wasmasm.New()}
	m := g.m
	if g.rnd.IntN(2) == 0 {
		p := types(wasmasm.I32)
		g.funcs = append(g.funcs, genFunc{m.ImportFunc("test", "twice", p, p), p, p})
	}
	m.Memory(1, 4)
	m.ExportMemory("memory", 0)
	m.Table(wasmasm.FuncRef, 8, 0)
	for i := range 1 + g.rnd.IntN(4) {
		t := g.typ()
		gl := m.Global(t, true, func(c *wasmasm.Code) { g.constant(c, t) })
		m.ExportGlobal("g"+string(rune('0'+i)), gl)
		g.globals = append(g.globals, genGlobal{gl, t})
	}
	g.data = m.PassiveData([]byte("passive data segment"))
	m.Data(int32(g.rnd.IntN(60000)), []byte("active data segment"))
	declared := make([]genFunc, 1+g.rnd.IntN(5))
	for i := range declared {
		p, r := g.types(3), g.types(2)
		declared[i] = genFunc{m.Declare(p, r), p, r}
	}
	g.funcs = append(g.funcs, declared...)
	for i, f := range declared {
		m.Define(f.f, len(f.params), func(c *wasmasm.Code) { g.function(c, f) })
		m.ExportFunc("f"+string(rune('0'+i)), f.f)
	}
	m.Elem(0, declared[0].f, declared[len(declared)-1].f)
	g.elem = m.PassiveElem(declared[0].f)
	if g.rnd.IntN(3) == 0 {
		m.Start(m.Func(nil, nil, func(c *wasmasm.Code) {
			c.I32Const(0).I32Const(int32(seed)).Mem(wasmasm.I32Store, 0)
			w := &writer{generator: g, c: c}
			g.fuel = 20
			w.statements(3)
		}))
	}
	return m
}

func (g *generator) function(c *wasmasm.Code, f genFunc) {
	w := &writer{generator: g, c: c, results: f.results}
	w.locals = append(w.locals, f.params...)
	for range g.rnd.IntN(6) {
		t := g.typ()
		c.Local(t)
		w.locals = append(w.locals, t)
	}
	g.fuel = 10 + g.rnd.IntN(400)
	w.labels = append(w.labels, label{f.results})
	w.statements(8)
	w.values(f.results)
}

func (g *generator) constant(c *wasmasm.Code, t wasmasm.ValType) {
	switch t {
	case wasmasm.I32:
		c.I32Const(int32(g.rnd.Uint32()) >> g.rnd.IntN(32))
	case wasmasm.I64:
		c.I64Const(int64(g.rnd.Uint64()) >> g.rnd.IntN(64))
	case wasmasm.F32:
		c.F32Const(float32(g.rnd.NormFloat64()) * 1000)
	case wasmasm.F64:
		c.F64Const(g.rnd.NormFloat64() * 1e6)
	}
}

// label is what a branch to a construct has to bring.
type label struct{ types []wasmasm.ValType }

// writer writes one function.
type writer struct {
	*generator
	c       *wasmasm.Code
	locals  []wasmasm.ValType
	results []wasmasm.ValType
	labels  []label // innermost last
}

// statements leaves the stack as it was.
func (w *writer) statements(most int) {
	for range 1 + w.rnd.IntN(most) {
		w.statement()
	}
}

func (w *writer) values(ts []wasmasm.ValType) {
	for _, t := range ts {
		w.value(t)
	}
}

// construct writes a block, loop or if with random parameters and results,
// and drops the results.
func (w *writer) construct(kind int) {
	const isBlock, isLoop, isIf = 0, 1, 2
	var params, results []wasmasm.ValType
	if w.rnd.IntN(3) == 0 {
		params = w.types(2)
	}
	if w.rnd.IntN(2) == 0 {
		results = w.types(2)
	}
	typ := wasmasm.Empty
	if len(params) == 0 && len(results) == 1 {
		typ = wasmasm.Yields(results[0])
	} else if len(params)+len(results) > 0 {
		typ = wasmasm.BlockType(w.m.Type(params, results))
	}
	w.values(params)
	target := label{results}
	switch kind {
	case isBlock:
		w.c.Block(typ)
	case isLoop:
		w.c.Loop(typ)
		target = label{params}
	case isIf:
		w.value(wasmasm.I32)
		w.c.If(typ)
	}
	w.labels = append(w.labels, target)
	arm := func() {
		for range params {
			w.c.Op(wasmasm.Drop)
		}
		w.statements(4)
		if kind == isLoop && w.rnd.IntN(2) == 0 { // go round
			w.values(params)
			w.value(wasmasm.I32)
			w.c.BrIf(0)
			for range params {
				w.c.Op(wasmasm.Drop)
			}
		}
		w.values(results)
	}
	arm()
	if kind == isIf && (len(params)+len(results) > 0 || w.rnd.IntN(2) == 0) {
		w.c.Else()
		arm()
	}
	w.labels = w.labels[:len(w.labels)-1]
	w.c.End()
	for range results {
		w.c.Op(wasmasm.Drop)
	}
}

// jump writes a branch or return and the dead code after it.
func (w *writer) jump() {
	depth := w.rnd.IntN(len(w.labels))
	to := w.labels[len(w.labels)-1-depth]
	w.c.Block(wasmasm.Empty) // the dead code ends with it
	w.labels = append(w.labels, label{})
	switch w.rnd.IntN(5) {
	case 0:
		w.values(w.results)
		w.c.Op(wasmasm.Return)
	case 1, 2:
		w.values(to.types)
		w.c.Br(uint32(depth) + 1)
	case 3: // all targets need the same types
		w.values(to.types)
		w.value(wasmasm.I32)
		var ds []uint32
		for d, l := range w.labels {
			if equal(l.types, to.types) {
				ds = append(ds, uint32(len(w.labels)-1-d))
			}
		}
		w.c.BrTable(append(ds, uint32(depth)+1)...)
	case 4:
		w.c.Op(wasmasm.Unreachable)
	}
	if w.rnd.IntN(2) == 0 {
		w.statements(2)
	}
	w.labels = w.labels[:len(w.labels)-1]
	w.c.End()
}

func equal(a, b []wasmasm.ValType) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// address leaves a small address, so that most accesses are within memory.
func (w *writer) address() {
	w.value(wasmasm.I32)
	w.c.I32Const(0x7fff).Op(wasmasm.I32And)
}

func (w *writer) statement() {
	w.fuel--
	kind := w.rnd.IntN(20)
	if w.fuel < 0 || len(w.labels) > 12 {
		kind = 15 + w.rnd.IntN(5)
	}
	switch kind {
	case 0, 1:
		w.construct(0)
	case 2, 3, 4:
		w.construct(1)
	case 5, 6:
		w.construct(2)
	case 7:
		if len(w.labels) > 0 {
			// Only sometimes, lest everything is dead.
			w.value(wasmasm.I32)
			w.c.If(wasmasm.Empty)
			w.labels = append(w.labels, label{})
			w.jump()
			w.labels = w.labels[:len(w.labels)-1]
			w.c.End()
		}
	case 8:
		f := w.funcs[w.rnd.IntN(len(w.funcs))]
		w.values(f.params)
		w.c.Call(f.f)
		for range f.results {
			w.c.Op(wasmasm.Drop)
		}
	case 9:
		f := w.funcs[w.rnd.IntN(len(w.funcs))]
		w.values(f.params)
		w.c.I32Const(int32(w.rnd.IntN(2)))
		w.c.CallIndirect(f.params, f.results)
		for range f.results {
			w.c.Op(wasmasm.Drop)
		}
	case 10:
		w.address()
		w.address()
		w.c.I32Const(int32(w.rnd.IntN(3000)))
		if w.rnd.IntN(2) == 0 {
			w.c.MemoryCopy()
		} else {
			w.c.MemoryFill()
		}
	case 11:
		w.address()
		w.c.I32Const(int32(w.rnd.IntN(10))).I32Const(int32(w.rnd.IntN(10))).MemoryInit(w.data)
	case 12:
		w.c.I32Const(int32(w.rnd.IntN(2))).MemoryGrow().Op(wasmasm.Drop)
	case 13:
		switch w.rnd.IntN(4) {
		case 0:
			w.c.I32Const(3).RefFunc(w.funcs[len(w.funcs)-1].f).TableSet(0)
		case 1:
			w.c.I32Const(2).I32Const(0).I32Const(1).TableInit(w.elem, 0)
		case 2:
			w.c.I32Const(4).I32Const(0).I32Const(2).TableCopy(0, 0)
		case 3:
			w.c.I32Const(5).RefNull(wasmasm.FuncRef).I32Const(2).TableFill(0)
		}
	case 14, 15:
		w.address()
		switch w.rnd.IntN(4) {
		case 0:
			w.value(wasmasm.I32)
			w.c.Mem(wasmasm.I32Store, uint32(w.rnd.IntN(200)))
		case 1:
			w.value(wasmasm.I64)
			w.c.Mem(wasmasm.I64Store32, 0)
		case 2:
			w.value(wasmasm.F64)
			w.c.Mem(wasmasm.F64Store, 8)
		case 3:
			w.value(wasmasm.F32)
			w.c.Mem(wasmasm.F32Store, 4)
		}
	case 16, 17:
		if len(w.locals) > 0 {
			l := w.rnd.IntN(len(w.locals))
			w.value(w.locals[l])
			w.c.LocalSet(uint32(l))
		}
	default:
		gl := w.globals[w.rnd.IntN(len(w.globals))]
		w.value(gl.t)
		w.c.GlobalSet(gl.g)
	}
}

// value leaves a value of type t.
func (w *writer) value(t wasmasm.ValType) {
	w.fuel--
	pick := w.rnd.IntN(10)
	if w.fuel < 0 {
		pick = w.rnd.IntN(4)
	}
	switch {
	case pick < 3:
		for range 3 {
			if l := w.rnd.IntN(len(w.locals) + 1); l < len(w.locals) && w.locals[l] == t {
				w.c.LocalGet(uint32(l))
				return
			}
		}
		w.generator.constant(w.c, t)
	case pick == 3:
		if gl := w.globals[w.rnd.IntN(len(w.globals))]; gl.t == t {
			w.c.GlobalGet(gl.g)
			return
		}
		w.generator.constant(w.c, t)
	case pick == 4:
		w.value(t)
		w.value(t)
		w.value(wasmasm.I32)
		if w.rnd.IntN(2) == 0 {
			w.c.SelectT(t)
		} else {
			w.c.Op(wasmasm.Select)
		}
	default:
		w.operator(t)
	}
}

func (w *writer) pick(ops ...wasmasm.Op) { w.c.Op(ops[w.rnd.IntN(len(ops))]) }

func (w *writer) operator(t wasmasm.ValType) {
	kind := w.rnd.IntN(4)
	switch t {
	case wasmasm.I32:
		switch kind {
		case 0:
			w.value(t)
			w.value(t)
			if w.rnd.IntN(8) > 0 { // a division by zero ends too much
				w.c.I32Const(1).Op(wasmasm.I32Or)
			}
			w.pick(wasmasm.I32DivU, wasmasm.I32RemS)
		case 1:
			w.value(t)
			w.value(t)
			w.pick(wasmasm.I32Add, wasmasm.I32Sub, wasmasm.I32Mul, wasmasm.I32And, wasmasm.I32Xor, wasmasm.I32ShrS, wasmasm.I32Rotl, wasmasm.I32LtS, wasmasm.I32GeU, wasmasm.I32Eq)
		case 2:
			w.address()
			w.c.Mem([]wasmasm.Op{wasmasm.I32Load, wasmasm.I32Load8S, wasmasm.I32Load16U}[w.rnd.IntN(3)], uint32(w.rnd.IntN(300)))
		case 3:
			switch w.rnd.IntN(5) {
			case 0:
				w.value(wasmasm.I64)
				w.pick(wasmasm.I32WrapI64, wasmasm.I64Eqz)
			case 1:
				w.value(wasmasm.F64)
				w.pick(wasmasm.I32TruncSatF64S, wasmasm.I32TruncSatF64U)
			case 2:
				w.value(t)
				w.pick(wasmasm.I32Eqz, wasmasm.I32Clz, wasmasm.I32Extend8S)
			case 3:
				w.c.MemorySize()
			case 4: // a vector and one of its lanes
				w.value(wasmasm.I32)
				w.c.SIMD(17)                                                  // i32x4.splat
				w.c.V128Const([16]byte{1, 2, 3, 4, 5}).SIMD(0xae).SIMD(27, 1) // i32x4.add, extract_lane
			}
		}
	case wasmasm.I64:
		switch kind {
		case 0, 1:
			w.value(t)
			w.value(t)
			w.pick(wasmasm.I64Add, wasmasm.I64Sub, wasmasm.I64Mul, wasmasm.I64Or, wasmasm.I64Xor, wasmasm.I64ShrU, wasmasm.I64Rotr)
		case 2:
			w.address()
			w.c.Mem([]wasmasm.Op{wasmasm.I64Load, wasmasm.I64Load8U, wasmasm.I64Load32S}[w.rnd.IntN(3)], 0)
		case 3:
			w.value(wasmasm.I32)
			w.pick(wasmasm.I64ExtendI32S, wasmasm.I64ExtendI32U)
		}
	case wasmasm.F32:
		switch kind {
		case 0, 1:
			w.value(t)
			w.value(t)
			w.pick(wasmasm.F32Add, wasmasm.F32Mul, wasmasm.F32Min, wasmasm.F32Copysign)
		case 2:
			w.address()
			w.c.Mem(wasmasm.F32Load, 0)
		case 3:
			w.value(wasmasm.I32)
			w.pick(wasmasm.F32ConvertI32S, wasmasm.F32ReinterpretI32)
		}
	case wasmasm.F64:
		switch kind {
		case 0, 1:
			w.value(t)
			w.value(t)
			w.pick(wasmasm.F64Add, wasmasm.F64Sub, wasmasm.F64Div, wasmasm.F64Max)
		case 2:
			w.address()
			w.c.Mem(wasmasm.F64Load, 0)
		case 3:
			w.value(wasmasm.I64)
			w.pick(wasmasm.F64ConvertI64S, wasmasm.F64ReinterpretI64)
		}
	}
}
