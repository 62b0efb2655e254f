package wasmbin

// meter decides where ticks stand in one function and how much each costs.
//
// One unit of fuel stands for about 32 simple instructions. The walk follows
// the longest way, in instructions, from the last tick to where it is; the
// structure of WebAssembly code makes that one pass, because every jump
// backwards goes to the header of a loop and every header has a tick. A tick
// costs what may have run since the last one. So between two visits to the
// host a guest runs a bounded number of instructions whatever its shape:
// straight-line code, recursion and jumps into and out of blocks included.
//
// Calls are the one estimate: a call counts as callDistance, a function that
// calls pays at its entry for what may run between its last tick and its
// return, and a small function that calls nothing pays nothing at all. Code
// made for it can run about eight times further than its fuel says; the time
// between two visits stays a few milliseconds.
type meter struct {
	w        *walker
	dist     int32 // instructions since the last tick; -1 in dead code
	entry    int   // the edit of the entry, or -1
	tail     int32 // the largest distance at a return
	straight bool  // nothing but plain instructions and block headers so far
	looped   bool  // a loop header follows the entry before anything else
	count    int32 // instructions
	arms     int   // so far
}

const (
	// unit is how many instructions cost 1.
	unit = 32
	// stretch is the distance after which a tick stands in straight code: far
	// enough to cost little, near enough to bound what one tick can cost.
	stretch = 256
	// callDistance is what a call adds to the distance of its caller.
	callDistance = 16
	// smallLeaf is the size up to which a function that calls nothing has no
	// tick at its entry.
	smallLeaf = 64
	// growCost is the price of growing memory, in units: growing is rare, and
	// what it costs the host is far more than an instruction.
	growCost = 64
	// A range in memory costs 1 for 256 bytes, a range in a table 1 for 32 entries.
	memShift   = 8
	tableShift = 5
)

// weight is the price of a tick at that distance.
func weight(dist int32) int32 { return 1 + max(dist, 0)/unit }

// enter starts a function whose first instruction is at.
func (m *meter) enter(at int) {
	m.entry = len(m.w.edits)
	m.straight = true
	m.w.edits = append(m.w.edits, edit{at: at, end: at, kind: editTick})
}

// before is called ahead of each instruction.
func (m *meter) before(at int, cls class) {
	m.count++
	switch cls {
	case clsBlock, clsLoop, clsPlain, clsLocal, clsGlobal, clsI32, clsI64, clsF32, clsF64, clsMem:
	default:
		m.straight = false
	}
	if m.dist < 0 {
		return
	}
	if m.dist >= stretch && cls != clsElse && cls != clsEnd {
		m.w.edits = append(m.w.edits, edit{at: at, end: at, kind: editTick, weight: weight(m.dist)})
		m.dist = 0
		m.w.visit()
	}
	if cls == clsMemGrow {
		m.w.visit()
		m.w.edits = append(m.w.edits, edit{at: at, end: at, kind: editTick, weight: growCost + weight(m.dist)})
		m.dist = 0
	}
	switch cls {
	case clsBlock, clsLoop, clsElse, clsEnd: // no machine code of their own
	default:
		m.dist++
	}
}

// open enters a construct whose first instruction is at.
func (m *meter) open(cls class, at, params, results int) {
	c := construct{
		kind: cls, merge: -1, enter: m.dist, loop: -1, log: len(m.w.access.list),
		arm: m.arm(), base: max(m.w.height-params, m.w.stack[len(m.w.stack)-1].base), params: params, results: results,
	}
	m.w.point()
	if cls == clsLoop {
		m.w.visit()
		m.w.lives.enter(c.log)
		m.w.loops = true
		m.w.cost.loops++
		c.merge = m.dist
		if m.dist >= 0 {
			c.loop = len(m.w.edits)
			m.w.edits = append(m.w.edits, edit{at: at, end: at, kind: editLoop, plain: params == 0})
			m.dist = 0
		}
		m.looped = m.looped || m.straight
		m.straight = false
	}
	m.w.stack = append(m.w.stack, c)
}

// arm is a new number for an arm of a construct; the function's own is 0.
func (m *meter) arm() int {
	m.arms++
	return m.arms
}

// otherwise goes from the first to the second arm of an if.
func (m *meter) otherwise() {
	c := &m.w.stack[len(m.w.stack)-1]
	c.kind = clsElse
	c.merge = max(c.merge, m.dist)
	m.dist = c.enter
	m.w.height = c.base + c.params
	c.arm = m.arm()
}

// close leaves the innermost construct.
func (m *meter) close() {
	s := m.w.stack
	c := s[len(s)-1]
	m.w.stack = s[:len(s)-1]
	if len(m.w.stack) > 0 {
		m.w.stack[len(m.w.stack)-1].sets += c.sets
		m.w.height = c.base + c.results
	}
	m.w.point()
	if c.kind == clsLoop {
		m.w.cost.carried += c.params
		m.w.lives.leave(m.w.access.list)
	} else {
		m.w.cost.merges += min(c.sets, len(m.w.locals)) + c.results
	}
	switch {
	case c.kind == clsLoop:
		if c.loop >= 0 {
			e := &m.w.edits[c.loop]
			e.weight = weight(c.merge)
			e.copies.from = len(m.w.copies)
			m.w.copies = m.w.access.carried(c.log, m.w.copies)
			e.copies.to = len(m.w.copies)
		}
		return
	case c.kind == clsIf: // without else, the condition may lead straight here
		c.merge = max(c.merge, c.enter)
	}
	m.dist = max(m.dist, c.merge)
	if len(m.w.stack) == 0 {
		m.leave()
	}
}

// branch is a possible jump to the construct that many levels out.
func (m *meter) branch(depth uint32, r *reader) {
	s := m.w.stack
	if uint64(depth) >= uint64(len(s)) {
		r.malformed("branch out of the function")
		return
	}
	c := &s[len(s)-1-int(depth)]
	c.merge = max(c.merge, m.dist)
}

// stop says that the next instruction is not reached from this one.
func (m *meter) stop() { m.dist = -1 }

// leave is a return from the function.
func (m *meter) leave() { m.tail = max(m.tail, m.dist) }

// call is a call of any kind.
func (m *meter) call(t funcType) {
	m.w.calls = true
	m.w.cost.visits++
	m.w.push(-len(t.params))
	m.w.push(len(t.results))
	if m.dist >= 0 {
		m.dist += callDistance
	}
}

// bulk charges an instruction after 0xfc that starts at.
func (m *meter) bulk(sub uint32, at int) {
	if m.dist < 0 {
		return
	}
	e := edit{at: at, end: at, kind: editRange, shift: memShift, weight: 1}
	switch sub {
	case subMemoryInit, subMemoryCopy, subMemoryFill:
	case subTableInit, subTableCopy, subTableFill:
		e.shift = tableShift
	case subTableGrow:
		e.shift, e.weight = tableShift, growCost
	default:
		return
	}
	m.w.ranges = true
	m.w.visit()
	m.w.edits = append(m.w.edits, e)
}

// finish settles whether the function has a tick at its entry.
func (m *meter) finish() {
	e := &m.w.edits[m.entry]
	switch {
	case m.looped: // the loop's own tick comes first on every way
	case m.w.calls || m.count > smallLeaf:
		e.weight = weight(m.tail)
	}
}
