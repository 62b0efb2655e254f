package wasmbin

import "fmt"

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
