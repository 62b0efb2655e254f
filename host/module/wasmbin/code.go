package wasmbin

import "fmt"

// facts is what the instructions of all functions say together.
type facts struct {
	instrs    int
	features  map[string]bool
	freshOnly map[string]bool // instructions whose effect a reset does not undo
	dataNamed bool            // memory.init or data.drop occurs
	sumLocals int
	cost      float64 // of all functions so far
}

// editKind is what is written at a place in a function.
type editKind byte

const (
	editFunc   editKind = iota // replace a function index
	editLoop                   // a tick after the loop instruction; weight
	editTick                   // a tick at a place between instructions; weight
	editRange                  // charge a range by its length, which is on top of the stack
	editReturn                 // a return, which has to store the counter first; index is the number of open constructs
)

// edit is one change of a function's code.
type edit struct {
	at, end int // offsets in the reader's bytes; end is of the bytes replaced
	kind    editKind
	index   uint32 // editFunc: the old index; editReturn
	weight  int32  // editLoop, editTick: units; editRange: constant part
	shift   byte   // editRange: units are length >> shift
	plain   bool   // editLoop: the loop has no parameters
	copies  span   // editLoop: locals to copy on the way to the host, in walker.copies
}

// construct is an open block, loop or if during the walk.
type construct struct {
	kind class
	// Distances are the number of instructions since the last tick, -1 if no
	// path comes here.
	merge int32 // the largest among branches to its end; of a loop, to its start
	enter int32 // of an if: the distance at its condition
	loop  int   // of a loop: its edit, -1 if it is dead code
	log   int   // of a loop: where its accesses to locals start
	sets  int   // assignments to locals inside
	arm   int   // a number that no other arm of the function has
	// The operand stack's height below its parameters, and how many values are
	// on top of that when its arms begin and when it ends.
	base, params, results int
}

// walker goes over functions one by one and reuses its buffers.
type walker struct {
	p       *parsed
	facts   facts
	mutable int // mutable globals, the fuel included
	stack   []construct

	// Of the function walked last:
	edits   []edit
	locals  []ValType // parameters included
	groups  uint32    // of locals as they are encoded
	code    int       // offset of the first instruction
	ranges  bool      // it has an editRange
	loops   bool      // it has a loop
	calls   bool      // it calls
	cost    cost
	height  int // of the operand stack; no less than it is, in code that is reached
	results []ValType
	copies  []uint32 // of all loops, see edit.copies
	access  accessLog
	lives   lives
}

func newWalker(p *parsed) *walker {
	w := &walker{p: p, mutable: 1, facts: facts{features: map[string]bool{}, freshOnly: map[string]bool{}}}
	for _, g := range p.globals {
		if g.mutable {
			w.mutable++
		}
	}
	return w
}

// readLocals reads the declarations before the instructions of a function.
func (w *walker) readLocals(r *reader, typ funcType) {
	w.locals = append(w.locals[:0], typ.params...)
	w.results = typ.results
	w.groups = r.u32()
	if r.ok() && uint64(w.groups)*2 > uint64(r.left()) {
		r.malformed("more locals than bytes")
	}
	for range w.groups {
		n, t := r.u32(), r.valType()
		if n > maxLocals || len(w.locals)+int(n) > maxLocals {
			r.fail(TooComplex, fmt.Sprintf("more than %d locals", maxLocals))
		}
		if !r.ok() {
			return
		}
		for range n {
			w.locals = append(w.locals, t)
		}
	}
	w.facts.sumLocals += len(w.locals)
	if w.facts.sumLocals > maxAllLocals {
		r.fail(TooComplex, "too many locals in all functions together")
	}
	w.code = r.p
}

// function walks the i-th defined function: it checks every index and the
// nesting, gathers facts and plans the edits.
func (w *walker) function(i int) error {
	p := w.p
	body := p.bodies[i]
	r := &body
	w.edits, w.copies, w.ranges, w.loops, w.calls, w.cost, w.height = w.edits[:0], w.copies[:0], false, false, false, cost{}, 0
	w.readLocals(r, p.types[p.funcTypes[int(p.nImpFuncs)+i]])
	w.access.reset(len(w.locals))
	w.lives.reset(len(w.locals))
	m := meter{w: w}
	m.enter(r.p)
	w.stack = append(w.stack[:0], construct{kind: clsBlock, merge: -1, loop: -1})
	for r.ok() && len(w.stack) > 0 {
		start := r.p
		op := r.u8()
		cls := classes[op]
		w.cost.instrs++
		m.before(start, cls)
		w.push(int(deltas[op]))
		switch cls {
		case clsPlain:
		case clsLocal:
			l := r.u32()
			if int(l) >= len(w.locals) {
				r.malformed(fmt.Sprintf("local %d of %d", l, len(w.locals)))
			}
			if !r.ok() {
				break
			}
			if op != opLocalGet {
				w.stack[len(w.stack)-1].sets++
			}
			w.lives.access(l, op != opLocalGet, w.stack)
			if w.lives.depth > 0 {
				w.access.add(l, op != opLocalGet)
			}
		case clsI32:
			r.signed(32)
		case clsI64:
			r.signed(64)
		case clsF32:
			r.skip(4)
		case clsF64:
			r.skip(8)
		case clsMem:
			w.needMemory(r)
			memarg(r)
		case clsGlobal:
			// An index equal to the count would name the fuel after the rewrite.
			if g := r.u32(); r.ok() && g >= uint32(len(p.globals)) {
				r.malformed(fmt.Sprintf("global %d of %d", g, len(p.globals)))
			}
		case clsBlock, clsLoop, clsIf:
			params, results := p.blockType(r)
			if len(w.stack) > maxNesting {
				r.fail(TooComplex, fmt.Sprintf("blocks are nested more than %d deep", maxNesting))
				break
			}
			w.cost.constructs++
			m.open(cls, r.p, params, results)
		case clsElse:
			if top := &w.stack[len(w.stack)-1]; top.kind != clsIf {
				r.malformed("else without if")
			}
			m.otherwise()
		case clsEnd:
			m.close()
		case clsBr, clsBrIf:
			w.point()
			m.branch(r.u32(), r)
			if cls == clsBr {
				m.stop()
			}
		case clsBrTable:
			for range r.count("labels", 1, maxBody) + 1 {
				w.cost.labels++
				m.branch(r.u32(), r)
				if !r.ok() {
					break
				}
			}
			m.stop()
			w.access.table()
		case clsStop:
			if op == 0x0f {
				w.edits = append(w.edits, edit{at: start, end: r.p, kind: editReturn, index: uint32(len(w.stack) - 1)})
				m.leave()
			}
			m.stop()
		case clsCall:
			at := r.p
			f := p.funcIndex(r)
			w.edits = append(w.edits, edit{at: at, end: r.p, kind: editFunc, index: f})
			if r.ok() {
				m.call(p.types[p.funcTypes[f]])
			}
		case clsIndirect:
			t := p.typeIndex(r)
			p.tableIndex(r)
			if r.ok() {
				m.call(p.types[t])
			}
		case clsRefFunc:
			w.facts.features[featureRefs] = true
			at := r.p
			f := p.funcIndex(r)
			if r.ok() && (p.declared == nil || !p.declared[f]) {
				r.malformed(fmt.Sprintf("ref.func of function %d, which nothing declares", f))
			}
			w.edits = append(w.edits, edit{at: at, end: r.p, kind: editFunc, index: f})
		case clsRef:
			w.facts.features[featureRefs] = true
		case clsRefNull:
			w.facts.features[featureRefs] = true
			r.refType()
		case clsSelectT:
			if r.u32() != 1 && r.ok() {
				r.malformed("select with other than one type")
			}
			r.valType()
		case clsTable, clsTableSet:
			w.facts.features[featureRefs] = true
			p.tableIndex(r)
			if cls == clsTableSet {
				w.facts.freshOnly["table.set"] = true
			}
		case clsMemSize, clsMemGrow:
			w.needMemory(r)
			r.zero("a memory other than 0")
		case clsSignExt:
			w.facts.features[featureSignExt] = true
		case clsBulk:
			sub := r.u32()
			p.bulkImmediates(r, sub)
			if r.ok() {
				w.bulk(r, sub)
				m.bulk(sub, start)
				w.push(bulkDelta(sub))
			}
		case clsSIMD:
			w.facts.features[featureSIMD] = true
			if sub := p.simdImmediates(r); r.ok() {
				w.push(int(vectorDeltas[sub]))
			}
		default:
			refuseInstruction(r, cls, op)
		}
	}
	r.end("last end of the function")
	if r.err != nil {
		return r.err
	}
	m.finish()
	w.facts.instrs += w.cost.instrs
	if w.checkCost(r); r.err != nil {
		return r.err
	}
	return nil
}

// push changes the height of the operand stack. In code that is never reached
// operands may come from nowhere, so it stops at the construct's own.
func (w *walker) push(n int) {
	w.height = max(w.height+n, w.stack[len(w.stack)-1].base)
}

// point counts a place where code parts or meets.
func (w *walker) point() {
	w.lives.point()
	w.cost.kept += w.height
}

// visit counts a tick: a call, and the parting before it.
func (w *walker) visit() {
	w.cost.visits++
	w.point()
}

func (w *walker) needMemory(r *reader) {
	if len(w.p.memories) == 0 {
		r.malformed("a memory instruction without a memory")
	}
}

// bulk gathers what an instruction after 0xfc means for a reset.
func (w *walker) bulk(r *reader, sub uint32) {
	f := &w.facts
	if sub < subMemoryInit {
		f.features[featureSatFloat] = true
		return
	}
	f.features[featureBulk] = true
	if sub <= subMemoryFill && sub != subDataDrop {
		w.needMemory(r)
	}
	switch sub {
	case subMemoryInit:
		f.dataNamed = true
	case subDataDrop:
		f.dataNamed = true
		f.freshOnly["data.drop"] = true
	case subElemDrop:
		f.freshOnly["elem.drop"] = true
	case subTableInit:
		f.freshOnly["table.init"] = true
	case subTableCopy:
		f.freshOnly["table.copy"] = true
	case subTableGrow:
		f.freshOnly["table.grow"] = true
	case subTableFill:
		f.freshOnly["table.fill"] = true
	}
}

func refuseInstruction(r *reader, cls class, op byte) {
	switch cls {
	case clsTail:
		r.unsupported(reasonTailCalls)
	case clsException:
		r.unsupported(reasonExceptions)
	case clsTypedRef:
		r.unsupported(reasonTypedRefs)
	case clsGC:
		r.unsupported(reasonGC)
	case clsThread:
		r.unsupported(reasonThreads)
	default:
		r.malformed(fmt.Sprintf("unknown instruction %#02x", op))
	}
}
