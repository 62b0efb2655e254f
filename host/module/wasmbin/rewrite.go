package wasmbin

import (
	"fmt"
	"strconv"
	"strings"
)

// Options says under which names a rewritten module and its host find each other.
type Options struct {
	// MeterModule and MeterTick name the function () -> i32 that a tick calls
	// when the fuel is used up. It answers the fuel until the next call: 0 or
	// more, in units of about 32 instructions. No module may import from
	// MeterModule itself.
	MeterModule, MeterTick string
	// Prefix starts the names of added exports. Where the module exports a name
	// that starts with it, a number is added to it. "" is "__runner".
	Prefix string
}

// Rewritten is a module that can be stopped and restored.
type Rewritten struct {
	Bytes  []byte
	Report *Report
	// Fuel is the name of the exported i32 global that ticks count down. It
	// starts at 0, so that the first tick calls the host.
	Fuel string
	// Globals are the names under which the mutable globals of types i32, i64,
	// f32 and f64 are exported, in the order of their indices.
	Globals []string
	// Start is the name under which the start function is exported; "" is none.
	Start string
	// Data is what the host has to copy into a new memory, in this order; nil
	// if the segments are still in the module.
	Data []Segment
}

// Rewrite makes a module stoppable and its state reachable; the package's
// comment says what it changes. Its error is an *Error; of kind Rejected, if
// the module's Report has reasons to reject it.
func Rewrite(b []byte, o Options) (res *Rewritten, err error) {
	defer contain(&err)
	if o.Prefix == "" {
		o.Prefix = "__runner"
	}
	w := &rewriter{o: o}
	p, walk, rep, err := scan(b, w.function)
	if err != nil {
		return nil, err
	}
	for _, im := range rep.Imports {
		if im.Module == o.MeterModule {
			rep.Reject = append(rep.Reject, fmt.Sprintf("imports %s.%s, which is reserved for the host", im.Module, im.Name))
			break
		}
	}
	if len(rep.Reject) > 0 {
		return nil, &Error{Rejected, -1, strings.Join(rep.Reject, "; ")}
	}
	return w.module(p, walk, rep), nil
}

// rewriter writes the new module. The code comes first, while it is scanned.
type rewriter struct {
	o    Options
	code []byte // function bodies with their lengths, so far
	body []byte // reused
}

// mapFunc is a function's index after the tick was imported behind the imported
// functions.
func (p *parsed) mapFunc(i uint32) uint32 {
	if i >= p.nImpFuncs {
		return i + 1
	}
	return i
}

// function writes the function that was walked last.
func (w *rewriter) function(walk *walker, i int) {
	p := walk.p
	src := p.bodies[i].b
	if w.code == nil {
		w.code = make([]byte, 0, len(p.sections[secCode].body)*9/8)
	}
	t := ticks{
		fuel: uint32(len(p.globals)), tick: p.nImpFuncs, locals: walk.locals,
		length: uint32(len(walk.locals)), counter: uint32(len(walk.locals)) + 1,
		useLocal: walk.loops && !walk.calls && len(walk.results) < 2,
	}
	out := w.body[:0]
	if walk.ranges || t.useLocal {
		out = appendU32(out, walk.groups+1)
		out = append(out, src[lebEnd(src):walk.code]...)
		out = append(out, 2, byte(typeI32))
	} else {
		out = append(out, src[:walk.code]...)
	}
	if t.useLocal {
		out = t.start(out, walk.results)
	}
	last := walk.code
	for j := range walk.edits {
		e := &walk.edits[j]
		out = append(out, src[last:e.at]...)
		last = e.end
		switch e.kind {
		case editFunc:
			out = appendU32(out, p.mapFunc(e.index))
		case editLoop:
			if e.plain {
				out = t.loop(out, e.weight, walk.copies[e.copies.from:e.copies.to])
			} else {
				out = t.plain(out, e.weight)
			}
		case editTick:
			if e.weight > 0 {
				out = t.plain(out, e.weight)
			}
		case editRange:
			out = t.charge(out, e.weight, e.shift)
		case editReturn:
			if t.useLocal {
				out = appendU32(append(out, opBr), e.index)
			} else {
				out = append(out, src[e.at:e.end]...)
			}
		}
	}
	out = append(out, src[last:]...)
	if t.useLocal {
		out = t.end(out)
	}
	w.code = append(appendU32(w.code, uint32(len(out))), out...)
	w.body = out
}

// lebEnd is where the integer at the start of b ends.
func lebEnd(b []byte) int {
	i := 0
	for b[i] >= 0x80 {
		i++
	}
	return i + 1
}

// module puts the new module together.
func (w *rewriter) module(p *parsed, walk *walker, rep *Report) *Rewritten {
	res := &Rewritten{Report: rep}
	var exports []byte
	nExports := uint32(len(p.exports))
	prefix := w.o.Prefix
	for n := 1; p.hasExport(prefix); n++ {
		prefix = w.o.Prefix + strconv.Itoa(n)
	}
	export := func(name string, kind Kind, index uint32) string {
		exports = appendU32(append(appendName(exports, name), byte(kind)), index)
		return name
	}
	for _, x := range p.exports {
		if x.kind == KindFunc {
			x.index = p.mapFunc(x.index)
		}
		export(x.name, x.kind, x.index)
	}
	added := func(name string, kind Kind, index uint32) string {
		nExports++
		return export(prefix+name, kind, index)
	}
	res.Fuel = added("_fuel", KindGlobal, uint32(len(p.globals)))
	for i, g := range p.globals {
		if i >= p.nImpGlobs && g.mutable && g.typ >= typeF64 && g.typ <= typeI32 {
			res.Globals = append(res.Globals, added("_global"+strconv.Itoa(i), KindGlobal, uint32(i)))
		}
	}
	if p.start != nil {
		res.Start = added("_start", KindFunc, p.mapFunc(*p.start))
	}
	data, omit := p.hostData(walk.facts.dataNamed)
	res.Data = data

	out := make([]byte, 0, len(p.b)+len(w.code)-len(p.code())+1024)
	out = append(out, p.b[:8]...)
	section := func(id byte, n uint32, items []byte) {
		if n > 0 {
			out = append(out, id)
			out = appendU32(out, uint32(lebLen(n)+len(items)))
			out = append(appendU32(out, n), items...)
		}
	}
	copied := func(id byte) {
		if s := p.sections[id]; s != nil {
			out = appendSection(out, id, s.body)
		}
	}
	// The type () -> i32 of the tick is added behind the others.
	section(secType, uint32(len(p.types))+1, append(clip(p.items(secType)), 0x60, 0, 1, byte(typeI32)))
	tick := appendName(appendName(clip(p.items(secImport)), w.o.MeterModule), w.o.MeterTick)
	section(secImport, uint32(len(p.imports))+1, appendU32(append(tick, byte(KindFunc)), uint32(len(p.types))))
	copied(secFunction)
	section(secTable, uint32(len(p.tables)-p.nImpTables), p.newTables())
	section(secMemory, 1, p.newMemory())
	section(secGlobal, uint32(len(p.globals)-p.nImpGlobs)+1, append(p.newGlobals(), byte(typeI32), 1, 0x41, 0, 0x0b))
	section(secExport, nExports, exports)
	section(secElement, uint32(p.nElems), p.newElements())
	if !omit {
		copied(secDataCount)
	}
	section(secCode, uint32(len(p.bodies)), w.code)
	if !omit {
		copied(secData)
	}
	if names := p.functionNames(p.mapFunc); names != nil {
		out = appendSection(out, secCustom, names)
	}
	res.Bytes = out
	return res
}

func (p *parsed) code() []byte {
	if s := p.sections[secCode]; s != nil {
		return s.body
	}
	return nil
}

// items is a section's vector without its length.
func (p *parsed) items(id byte) []byte {
	s := p.sections[id]
	if s == nil {
		return nil
	}
	return s.body[lebEnd(s.body):]
}

// clip makes sure that appending to b copies it.
func clip(b []byte) []byte { return b[:len(b):len(b)] }

// newTables gives every table a maximum, so that all together never have more
// than maxTableElems entries. A table that cannot grow further is a table that
// may refuse to grow; every guest has to expect that.
func (p *parsed) newTables() (out []byte) {
	var entries uint32
	for _, t := range p.tables {
		entries += t.min
	}
	room := (maxTableElems - entries) / uint32(max(len(p.tables), 1))
	for _, t := range p.tables[p.nImpTables:] {
		limit := t.min + room
		if t.hasMax {
			limit = min(limit, t.max)
		}
		out = appendU32(appendU32(append(out, byte(t.elem), 1), t.min), limit)
	}
	return out
}

// newMemory is the only memory with the largest maximum.
func (p *parsed) newMemory() []byte {
	return appendU32(appendU32([]byte{1}, p.memories[0].min), pageLimit)
}

// newGlobals are the globals with the functions in their initialisers mapped.
func (p *parsed) newGlobals() (out []byte) {
	s := p.sections[secGlobal]
	for _, g := range p.globals[p.nImpGlobs:] {
		out = append(out, byte(g.typ), boolByte(g.mutable))
		init := s.body[g.start:g.end]
		if init[0] == 0xd2 { // ref.func stands alone
			r := reader{b: init, p: 1}
			i := r.u32()
			out = appendU32(append(out, 0xd2), p.mapFunc(i))
			init = init[r.p:]
		}
		out = append(out, init...)
	}
	return out
}

// newElements are the element segments with their functions mapped.
func (p *parsed) newElements() (out []byte) {
	s := p.sections[secElement]
	if s == nil {
		return nil
	}
	r := s.reader()
	for range r.count("element segments", 3, maxElements) {
		out = p.element(&r, p.mapFunc, out)
	}
	return out
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
