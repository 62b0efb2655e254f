package wasmbin

import (
	"fmt"
	"strings"
)

// The ids of sections.
const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
	secTag
)

var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data", "data count", "tag"}

// rank orders the sections: a section's rank is above that of all before it.
var rank = [...]int{secType: 1, secImport: 2, secFunction: 3, secTable: 4, secMemory: 5, secTag: 6, secGlobal: 7, secExport: 8, secStart: 9, secElement: 10, secDataCount: 11, secCode: 12, secData: 13}

// parsed is a module without its instructions: everything that is needed to
// judge those and to write the module again.
type parsed struct {
	b        []byte
	sections [secTag + 1]*section // by id; nil if absent; custom ones are not here
	names    *reader              // content of the first name section

	types      []funcType
	imports    []parsedImport
	funcTypes  []uint32 // of all functions, imported ones first
	nImpFuncs  uint32
	tables     []table // imported ones first
	nImpTables int
	memories   []limits // imported ones first
	nImpMems   int
	globals    []global // imported ones first
	nImpGlobs  int
	exports    []parsedExport
	start      *uint32
	nElems     int
	declared   []bool // by function: it occurs outside of code, so that ref.func may name it
	datas      []dataSegment
	dataCount  *uint32
	bodies     []reader // of defined functions, from their locals on
	extConst   bool
}

type section struct {
	id   byte
	body []byte
	at   int // offset of body in the module
}

func (s *section) reader() reader { return reader{b: s.body, base: s.at} }

type parsedImport struct {
	module, name string
	kind         Kind
	typ          uint32 // of a function
}

type parsedExport struct {
	name  string
	kind  Kind
	index uint32
}

type table struct {
	elem ValType
	limits
}

type global struct {
	typ        ValType
	mutable    bool
	start, end int // of its initialiser in the section's body
}

// parse reads everything but the instructions. Its error is an *Error or an
// *unsupported; then what was read so far is returned as well.
func parse(b []byte) (*parsed, error) {
	p := &parsed{b: b}
	if len(b) < 8 || string(b[:4]) != "\x00asm" {
		return p, &Error{NotWasm, 0, "not a WebAssembly module: it does not start with \\0asm"}
	}
	if b[4] == 1 && b[5]|b[6]|b[7] == 0 {
		return p, p.parseSections()
	}
	if b[6] == 1 && b[7] == 0 {
		return p, &Error{Component, 4, "this is a component, not a core module: build a core module, for example with target wasip1 or wasm32-unknown-unknown"}
	}
	return p, &Error{NotWasm, 4, fmt.Sprintf("unknown version %d of WebAssembly, want 1", uint32(b[4])|uint32(b[5])<<8|uint32(b[6])<<16|uint32(b[7])<<24)}
}

func (p *parsed) parseSections() error {
	r := &reader{b: p.b, p: 8}
	last := 0
	for r.ok() && r.left() > 0 {
		at := r.p
		id := r.u8()
		s := section{id: id, body: r.skip(r.u32())}
		if !r.ok() {
			return r.err
		}
		s.at = r.p - len(s.body)
		if id == secCustom {
			if err := p.custom(&s); err != nil {
				return err
			}
			continue
		}
		if int(id) >= len(rank) {
			return &Error{Malformed, at, fmt.Sprintf("unknown section %d", id)}
		}
		if rank[id] <= last {
			return &Error{Malformed, at, "the " + sectionNames[id] + " section is out of order or repeated"}
		}
		last = rank[id]
		p.sections[id] = &s
	}
	if !r.ok() {
		return r.err
	}
	for _, step := range []struct {
		id byte
		do func(r *reader)
	}{
		{secType, p.parseTypes}, {secImport, p.parseImports}, {secFunction, p.parseFunctions}, {secTable, p.parseTables},
		{secMemory, p.parseMemories}, {secTag, p.parseTags}, {secGlobal, p.parseGlobals}, {secExport, p.parseExports},
		{secStart, p.parseStart}, {secElement, p.parseElements}, {secDataCount, p.parseDataCount}, {secCode, p.parseBodies}, {secData, p.parseData},
	} {
		s := p.sections[step.id]
		if s == nil {
			continue
		}
		r := s.reader()
		step.do(&r)
		r.end(sectionNames[step.id] + " section")
		if !r.ok() {
			return r.err
		}
	}
	return p.consistent()
}

// custom keeps the first name section. The name of a custom section has to be
// one; what else it holds has no effect on what the module means.
func (p *parsed) custom(s *section) error {
	r := s.reader()
	if name := r.name(); name == "name" && p.names == nil && r.ok() {
		p.names = &r
	}
	return r.err
}

func (p *parsed) parseTypes(r *reader) {
	p.types = make([]funcType, 0, r.count("types", 3, maxTypes))
	for range cap(p.types) {
		p.types = append(p.types, r.funcType())
		if !r.ok() {
			return
		}
	}
}

func (p *parsed) parseImports(r *reader) {
	p.imports = make([]parsedImport, 0, r.count("imports", 4, maxImports))
	for range cap(p.imports) {
		im := parsedImport{module: r.name(), name: r.name(), kind: Kind(r.u8())}
		if !r.ok() {
			return
		}
		switch im.kind {
		case KindFunc:
			im.typ = p.typeIndex(r)
			p.funcTypes = append(p.funcTypes, im.typ)
			p.nImpFuncs++
		case KindTable:
			p.tables = append(p.tables, p.table(r))
			p.nImpTables++
		case KindMemory:
			p.memories = append(p.memories, r.limits())
			p.nImpMems++
		case KindGlobal:
			p.globals = append(p.globals, r.globalType())
			p.nImpGlobs++
		case KindTag:
			r.unsupported(fmt.Sprintf("imports the tag %s.%s; %s", im.module, im.name, reasonExceptions))
		default:
			r.malformed("unknown kind of import")
		}
		if !r.ok() {
			return
		}
		p.imports = append(p.imports, im)
	}
}

// typeIndex reads the index of a function type.
func (p *parsed) typeIndex(r *reader) uint32 {
	i := r.u32()
	if r.ok() && i >= uint32(len(p.types)) {
		r.malformed(fmt.Sprintf("type %d of %d", i, len(p.types)))
		return 0
	}
	return i
}

// funcIndex reads the index of a function.
func (p *parsed) funcIndex(r *reader) uint32 {
	i := r.u32()
	if r.ok() && i >= uint32(len(p.funcTypes)) {
		r.malformed(fmt.Sprintf("function %d of %d", i, len(p.funcTypes)))
		return 0
	}
	return i
}

// declare makes a function legal for ref.func.
func (p *parsed) declare(i uint32) {
	if p.declared == nil {
		p.declared = make([]bool, len(p.funcTypes))
	}
	if int(i) < len(p.declared) {
		p.declared[i] = true
	}
}

func (p *parsed) parseFunctions(r *reader) {
	n := r.count("functions", 1, maxFunctions)
	for range n {
		t := p.typeIndex(r)
		if !r.ok() {
			return
		}
		p.funcTypes = append(p.funcTypes, t)
	}
}

func (p *parsed) table(r *reader) table {
	if r.ok() && r.left() > 0 && r.b[r.p] == 0x40 {
		r.unsupported(reasonTypedRefs)
	}
	t := table{elem: r.refType(), limits: r.limits()}
	if r.ok() && t.shared {
		r.malformed("a table cannot be shared")
	}
	return t
}

func (p *parsed) parseTables(r *reader) {
	for range r.count("tables", 3, maxTables) {
		p.tables = append(p.tables, p.table(r))
		if !r.ok() {
			return
		}
	}
}

func (p *parsed) parseMemories(r *reader) {
	for range r.count("memories", 2, maxTables) {
		p.memories = append(p.memories, r.limits())
	}
}

func (p *parsed) parseTags(r *reader) { r.unsupported(reasonExceptions) }

func (r *reader) globalType() global {
	g := global{typ: r.valType()}
	switch r.u8() {
	case 0:
	case 1:
		g.mutable = true
	default:
		r.malformed("unknown mutability of a global")
	}
	return g
}

func (p *parsed) parseGlobals(r *reader) {
	for range r.count("globals", 4, maxGlobals) {
		g := r.globalType()
		g.start = r.p
		p.constExpr(r)
		g.end = r.p
		p.globals = append(p.globals, g)
		if !r.ok() {
			return
		}
	}
}

func (p *parsed) parseExports(r *reader) {
	n := r.count("exports", 3, maxExports)
	seen := make(map[string]struct{}, n)
	for range n {
		x := parsedExport{name: r.name(), kind: Kind(r.u8()), index: r.u32()}
		if !r.ok() {
			return
		}
		var have int
		switch x.kind {
		case KindFunc:
			have = len(p.funcTypes)
		case KindTable:
			have = len(p.tables)
		case KindMemory:
			have = len(p.memories)
		case KindGlobal:
			have = len(p.globals)
		default:
			r.malformed("unknown kind of export")
			return
		}
		if uint64(x.index) >= uint64(have) {
			r.malformed(fmt.Sprintf("export %q names %s %d of %d", x.name, x.kind, x.index, have))
			return
		}
		if _, dup := seen[x.name]; dup {
			r.malformed(fmt.Sprintf("two exports are named %q", x.name))
			return
		}
		seen[x.name] = struct{}{}
		if x.kind == KindFunc {
			p.declare(x.index)
		}
		p.exports = append(p.exports, x)
	}
}

func (p *parsed) parseStart(r *reader) {
	i := p.funcIndex(r)
	if !r.ok() {
		return
	}
	if t := p.types[p.funcTypes[i]]; len(t.params)+len(t.results) > 0 {
		r.malformed("the start function has type " + t.String() + ", want () -> ()")
	}
	p.start = &i
}

func (p *parsed) parseDataCount(r *reader) {
	n := r.u32()
	p.dataCount = &n
}

// consistent checks what several sections say together.
func (p *parsed) consistent() error {
	if defined := len(p.funcTypes) - int(p.nImpFuncs); defined != len(p.bodies) {
		return &Error{Malformed, -1, fmt.Sprintf("%d functions are declared and %d have code", defined, len(p.bodies))}
	}
	if p.dataCount != nil && *p.dataCount != uint32(len(p.datas)) {
		return &Error{Malformed, -1, fmt.Sprintf("the data count section says %d segments, there are %d", *p.dataCount, len(p.datas))}
	}
	for i, m := range p.memories {
		if m.min > pageLimit || m.hasMax && m.max > pageLimit {
			return &Error{Malformed, -1, fmt.Sprintf("memory %d is larger than 65536 pages", i)}
		}
	}
	if len(p.memories) == 0 {
		for _, d := range p.datas {
			if !d.passive {
				return &Error{Malformed, -1, "a data segment without a memory"}
			}
		}
	}
	var entries uint64
	for _, t := range p.tables {
		entries += uint64(t.min)
	}
	if entries > maxTableElems {
		return &Error{TooComplex, -1, fmt.Sprintf("tables of %d entries, at most %d are allowed", entries, maxTableElems)}
	}
	return nil
}

// parseBodies finds the functions' code without reading it.
func (p *parsed) parseBodies(r *reader) {
	n := r.count("function bodies", 3, maxFunctions)
	p.bodies = make([]reader, 0, n)
	for range n {
		size := r.u32()
		if r.ok() && size > maxBody {
			r.fail(TooComplex, fmt.Sprintf("function %d has %d bytes of code, at most %d are allowed", len(p.bodies)+int(p.nImpFuncs), size, maxBody))
		}
		p.bodies = append(p.bodies, r.sub(size))
		if !r.ok() {
			return
		}
	}
}

// hasExport says whether any export starts with prefix.
func (p *parsed) hasExport(prefix string) bool {
	for _, x := range p.exports {
		if strings.HasPrefix(x.name, prefix) {
			return true
		}
	}
	return false
}
