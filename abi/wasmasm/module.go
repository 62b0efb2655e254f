package wasmasm

import (
	"errors"
	"fmt"

	"github.com/jobrunner/runner/abi"
)

// ValType is a core value type.
type ValType = abi.ValType

// The value types.
const (
	I32       = abi.I32
	I64       = abi.I64
	F32       = ValType(0x7d)
	F64       = ValType(0x7c)
	V128      = ValType(0x7b)
	FuncRef   = ValType(0x70)
	ExternRef = ValType(0x6f)
)

// Types is a list of value types; Types() is "none".
func Types(t ...ValType) []ValType { return t }

// Func is a function's index.
type Func uint32

// Global is a global's index.
type Global uint32

// Module is a module under construction. The zero value is not ready: use New.
type Module struct {
	types    []string // encoded, deduplicated
	imports  [][]byte
	nFuncs   uint32 // imported and defined
	nImpFunc uint32
	nGlobals uint32
	nImpGlob uint32
	defined  []uint32 // type of each defined function
	bodies   [][]byte // nil until defined
	tables   [][]byte
	memories [][]byte
	globals  [][]byte
	exports  [][]byte
	start    *Func
	elems    [][]byte
	datas    [][]byte
	count    bool // write a data count section
	customs  [][]byte
	raw      map[byte][]byte
	errs     []error
}

// New is an empty module.
func New() *Module { return &Module{raw: map[byte][]byte{}} }

func (m *Module) failf(format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf("wasmasm: "+format, args...))
}

// Type is the index of a function type, the same for the same type.
func (m *Module) Type(params, results []ValType) uint32 {
	b := appendU([]byte{0x60}, uint64(len(params)))
	for _, t := range params {
		b = append(b, byte(t))
	}
	b = appendU(b, uint64(len(results)))
	for _, t := range results {
		b = append(b, byte(t))
	}
	for i, t := range m.types {
		if t == string(b) {
			return uint32(i)
		}
	}
	m.types = append(m.types, string(b))
	return uint32(len(m.types) - 1)
}

func (m *Module) imported(module, name string, desc ...byte) {
	m.imports = append(m.imports, append(appendName(appendName(nil, module), name), desc...))
}

// ImportFunc imports a function. All imported functions come before the first Func.
func (m *Module) ImportFunc(module, name string, params, results []ValType) Func {
	if len(m.defined) > 0 {
		m.failf("import of %s.%s after a function was defined", module, name)
	}
	m.imported(module, name, appendU([]byte{0}, uint64(m.Type(params, results)))...)
	m.nImpFunc++
	m.nFuncs++
	return Func(m.nFuncs - 1)
}

// ImportTable imports a table of functions without a maximum.
func (m *Module) ImportTable(module, name string, min uint32) {
	m.imported(module, name, appendU([]byte{1, byte(FuncRef), 0}, uint64(min))...)
}

// ImportMemory imports a memory without a maximum.
func (m *Module) ImportMemory(module, name string, min uint32) {
	m.imported(module, name, appendU([]byte{2, 0}, uint64(min))...)
}

// ImportGlobal imports a global. All imported globals come before the first Global.
func (m *Module) ImportGlobal(module, name string, t ValType, mutable bool) Global {
	if len(m.globals) > 0 {
		m.failf("import of %s.%s after a global was defined", module, name)
	}
	m.imported(module, name, 3, byte(t), boolByte(mutable))
	m.nImpGlob++
	m.nGlobals++
	return Global(m.nGlobals - 1)
}

// Func defines a function; body writes its instructions, without the last end.
func (m *Module) Func(params, results []ValType, body func(c *Code)) Func {
	f := m.Declare(params, results)
	m.Define(f, len(params), body)
	return f
}

// Declare reserves a function whose body comes later, for calls in circles.
func (m *Module) Declare(params, results []ValType) Func {
	m.defined = append(m.defined, m.Type(params, results))
	m.bodies = append(m.bodies, nil)
	m.nFuncs++
	return Func(m.nFuncs - 1)
}

// Define writes the body of a declared function with that many parameters.
func (m *Module) Define(f Func, params int, body func(c *Code)) {
	i := int(f) - int(m.nImpFunc)
	if i < 0 || i >= len(m.bodies) || m.bodies[i] != nil {
		m.failf("function %d has no place for a body", f)
		return
	}
	c := &Code{m: m, Self: f, params: uint32(params)}
	body(c)
	c.End()
	m.bodies[i] = append(c.encodeLocals(), c.b...)
}

// Memory defines a memory of min pages; max 0 is no maximum.
func (m *Module) Memory(min, max uint32) { m.memories = append(m.memories, limits(0, min, max)) }

// MemoryFlags is Memory with extra bits in the limits: 2 shared, 4 64-bit.
func (m *Module) MemoryFlags(flags byte, min, max uint32) {
	m.memories = append(m.memories, limits(flags, min, max))
}

// Table defines a table of t; max 0 is no maximum.
func (m *Module) Table(t ValType, min, max uint32) {
	m.tables = append(m.tables, append([]byte{byte(t)}, limits(0, min, max)...))
}

func limits(flags byte, min, max uint32) []byte {
	if max > 0 {
		flags |= 1
	}
	b := appendU([]byte{flags}, uint64(min))
	if max > 0 {
		b = appendU(b, uint64(max))
	}
	return b
}

// Global defines a global; init writes its constant expression, without the last end.
func (m *Module) Global(t ValType, mutable bool, init func(c *Code)) Global {
	m.globals = append(m.globals, append([]byte{byte(t), boolByte(mutable)}, m.constant(init)...))
	m.nGlobals++
	return Global(m.nGlobals - 1)
}

// GlobalI32 defines an i32 global.
func (m *Module) GlobalI32(mutable bool, v int32) Global {
	return m.Global(I32, mutable, func(c *Code) { c.I32Const(v) })
}

func (m *Module) constant(init func(c *Code)) []byte {
	c := &Code{m: m}
	init(c)
	return c.End().b
}

func (m *Module) export(name string, kind byte, index uint32) {
	m.exports = append(m.exports, appendU(append(appendName(nil, name), kind), uint64(index)))
}

// ExportFunc exports a function.
func (m *Module) ExportFunc(name string, f Func) { m.export(name, 0, uint32(f)) }

// ExportTable exports the table at that index.
func (m *Module) ExportTable(name string, index uint32) { m.export(name, 1, index) }

// ExportMemory exports the memory at that index.
func (m *Module) ExportMemory(name string, index uint32) { m.export(name, 2, index) }

// ExportGlobal exports a global.
func (m *Module) ExportGlobal(name string, g Global) { m.export(name, 3, uint32(g)) }

// Start makes f the start function.
func (m *Module) Start(f Func) { m.start = &f }

// Elem fills table 0 from offset on with functions, at instantiation.
func (m *Module) Elem(offset int32, fs ...Func) {
	b := append([]byte{0}, m.constant(func(c *Code) { c.I32Const(offset) })...)
	m.elems = append(m.elems, appendFuncs(b, fs))
}

// PassiveElem is a segment for table.init.
func (m *Module) PassiveElem(fs ...Func) uint32 {
	m.elems = append(m.elems, appendFuncs([]byte{1, 0}, fs))
	return uint32(len(m.elems) - 1)
}

// DeclareElem makes functions legal for ref.func.
func (m *Module) DeclareElem(fs ...Func) {
	m.elems = append(m.elems, appendFuncs([]byte{3, 0}, fs))
}

func appendFuncs(b []byte, fs []Func) []byte {
	b = appendU(b, uint64(len(fs)))
	for _, f := range fs {
		b = appendU(b, uint64(f))
	}
	return b
}

// RawElem adds an element segment as it is encoded.
func (m *Module) RawElem(b ...byte) { m.elems = append(m.elems, b) }

// Data fills memory from offset on, at instantiation.
func (m *Module) Data(offset int32, b []byte) {
	m.DataAt(func(c *Code) { c.I32Const(offset) }, b)
}

// DataAt is Data with any constant expression as its offset.
func (m *Module) DataAt(offset func(c *Code), b []byte) {
	seg := append([]byte{0}, m.constant(offset)...)
	m.datas = append(m.datas, append(appendU(seg, uint64(len(b))), b...))
}

// PassiveData is a segment for memory.init and data.drop.
func (m *Module) PassiveData(b []byte) uint32 {
	m.datas = append(m.datas, append(appendU([]byte{1}, uint64(len(b))), b...))
	m.count = true
	return uint32(len(m.datas) - 1)
}

// DataCount writes a data count section, which memory.init and data.drop need.
// PassiveData implies it.
func (m *Module) DataCount() { m.count = true }

// Custom adds a custom section after all others.
func (m *Module) Custom(name string, content []byte) {
	m.customs = append(m.customs, append(appendName(nil, name), content...))
}

// FuncName is an entry of Names.
type FuncName struct {
	Func Func
	Name string
}

// Names adds a name section with the module's name and functions' names, which
// must come in the order of their indices.
func (m *Module) Names(module string, funcs ...FuncName) {
	mod := appendName(nil, module)
	fn := appendU(nil, uint64(len(funcs)))
	for _, f := range funcs {
		fn = appendName(appendU(fn, uint64(f.Func)), f.Name)
	}
	b := append(appendU([]byte{0}, uint64(len(mod))), mod...)
	b = append(appendU(append(b, 1), uint64(len(fn))), fn...)
	m.Custom("name", b)
}

// RawSection writes a section of that id with that body instead of the one the
// module would have written.
func (m *Module) RawSection(id byte, body []byte) { m.raw[id] = body }

// Build is the module's binary, or what made it impossible.
func (m *Module) Build() ([]byte, error) {
	for i, b := range m.bodies {
		if b == nil {
			m.failf("function %d has no body", i+int(m.nImpFunc))
		}
	}
	if len(m.errs) > 0 {
		return nil, errors.Join(m.errs...)
	}
	out := []byte{0, 'a', 's', 'm', 1, 0, 0, 0}
	types := make([][]byte, len(m.types))
	for i, t := range m.types {
		types[i] = []byte(t)
	}
	funcs := make([][]byte, len(m.defined))
	for i, t := range m.defined {
		funcs[i] = appendU(nil, uint64(t))
	}
	bodies := make([][]byte, len(m.bodies))
	for i, b := range m.bodies {
		bodies[i] = append(appendU(nil, uint64(len(b))), b...)
	}
	// The order of the sections is the specification's, tags (13) and the data
	// count (12) included.
	for _, s := range []struct {
		id    byte
		items [][]byte
	}{
		{1, types}, {2, m.imports}, {3, funcs}, {4, m.tables}, {5, m.memories}, {13, nil}, {6, m.globals}, {7, m.exports},
		{8, nil}, {9, m.elems}, {12, nil}, {10, bodies}, {11, m.datas},
	} {
		body, ok := m.raw[s.id]
		switch {
		case ok:
		case s.id == 8 && m.start != nil:
			body = appendU(nil, uint64(*m.start))
		case s.id == 12 && m.count:
			body = appendU(nil, uint64(len(m.datas)))
		case len(s.items) > 0:
			body = appendU(nil, uint64(len(s.items)))
			for _, it := range s.items {
				body = append(body, it...)
			}
		default:
			continue
		}
		out = append(appendU(append(out, s.id), uint64(len(body))), body...)
	}
	for _, c := range m.customs {
		out = append(appendU(append(out, 0), uint64(len(c))), c...)
	}
	return out, nil
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
