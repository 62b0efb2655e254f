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

// hasExport says whether any export starts with prefix.
func (p *parsed) hasExport(prefix string) bool {
	for _, x := range p.exports {
		if strings.HasPrefix(x.name, prefix) {
			return true
		}
	}
	return false
}
