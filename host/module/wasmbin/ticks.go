package wasmbin

// Instructions that ticks are made of.
const (
	opLoop      = 0x03
	opIf        = 0x04
	opEnd       = 0x0b
	opBr        = 0x0c
	opCall      = 0x10
	opLocalGet  = 0x20
	opLocalSet  = 0x21
	opLocalTee  = 0x22
	opGlobalGet = 0x23
	opGlobalSet = 0x24
	opI32Const  = 0x41
	opI64Const  = 0x42
	opI32LtS    = 0x48
	opI32Add    = 0x6a
	opI32Sub    = 0x6b
	opI32Or     = 0x72
	opI32ShrU   = 0x76
	opI64Add    = 0x7c
	blockEmpty  = 0x40
)

// ticks writes the sequences that the meter planned for one function.
//
// A tick is: fuel -= weight; if fuel < 0 { fuel = tick() }. The fuel is a
// global. A function that has loops and calls nothing counts in a local
// instead, which it loads at its start and stores at its end: a register in
// place of two accesses to memory in every round. Traps leave the global
// behind, which is of no matter, because whoever uses the instance again sets it.
type ticks struct {
	fuel     uint32 // index of the fuel global
	tick     uint32 // index of the imported function
	length   uint32 // local for the length of a range
	counter  uint32 // local for the fuel
	useLocal bool   // whether counter is used
	locals   []ValType
}

func (t *ticks) get(b []byte) []byte {
	if t.useLocal {
		return appendU32(append(b, opLocalGet), t.counter)
	}
	return appendU32(append(b, opGlobalGet), t.fuel)
}

func (t *ticks) set(b []byte) []byte {
	if t.useLocal {
		return appendU32(append(b, opLocalSet), t.counter)
	}
	return appendU32(append(b, opGlobalSet), t.fuel)
}

// exhausted opens an if that is entered when the fuel is used up.
func (t *ticks) exhausted(b []byte) []byte {
	return append(t.get(b), opI32Const, 0, opI32LtS, opIf, blockEmpty)
}

// visit asks the host for fuel and leaves it on the stack.
func (t *ticks) visit(b []byte) []byte { return appendU32(append(b, opCall), t.tick) }

func (t *ticks) subtract(b []byte, weight int32) []byte {
	return t.set(append(appendI32(append(t.get(b), opI32Const), weight), opI32Sub))
}

// plain is a tick at any place between two instructions.
func (t *ticks) plain(b []byte, weight int32) []byte {
	b = t.exhausted(t.subtract(b, weight))
	return append(t.set(t.visit(b)), opEnd)
}

// loop is a tick right after a loop instruction that has no parameters. Having
// visited the host, it goes to the header again, so that the rest of the loop
// has one way in. There the weight is taken a second time; what the host gave
// is made large enough for it.
func (t *ticks) loop(b []byte, weight int32, copies []uint32) []byte {
	b = t.exhausted(t.subtract(b, weight))
	for _, l := range copies {
		b = t.copyLocal(b, l)
	}
	b = t.visit(b)
	b = t.set(append(appendI32(append(b, opI32Const), maxLoopWeight), opI32Or))
	return append(b, opBr, 1, opEnd)
}

// maxLoopWeight is 2^n-1 and not less than the weight of a loop's tick, or the
// constant after it does not compile.
const (
	maxLoopWeight = 15
	_             = uint(maxLoopWeight - (1 + (stretch+callDistance)/unit))
)

// copyLocal replaces a local by a copy that a compiler takes for a new value.
func (t *ticks) copyLocal(b []byte, l uint32) []byte {
	get := func() { b = appendU32(append(b, opLocalGet), l) }
	switch t.locals[l] {
	case typeI32:
		get()
		b = append(b, opI32Const, 0, opI32Add)
	case typeI64:
		get()
		b = append(b, opI64Const, 0, opI64Add)
	case typeF32:
		get()
		b = append(b, 0xbc, 0xbe) // to i32 and back, bit by bit
	case typeF64:
		get()
		b = append(b, 0xbd, 0xbf)
	default:
		return b
	}
	return appendU32(append(b, opLocalSet), l)
}

// charge is a tick for a range, whose length is on top of the stack and stays there.
func (t *ticks) charge(b []byte, weight int32, shift byte) []byte {
	b = appendU32(append(b, opLocalTee), t.length)
	b = appendU32(append(t.get(b), opLocalGet), t.length)
	b = t.set(append(b, opI32Const, shift, opI32ShrU, opI32Sub))
	return t.plain(b, weight)
}

// start and end surround the code of a function that counts in a local. The
// block between them stands where the function's own label was, so branches
// keep their depths; a return has to become a branch to it.
func (t *ticks) start(b []byte, results []ValType) []byte {
	b = t.set(appendU32(append(b, opGlobalGet), t.fuel))
	if len(results) == 1 {
		return append(b, 0x02, byte(results[0]))
	}
	return append(b, 0x02, blockEmpty)
}

func (t *ticks) end(b []byte) []byte {
	return append(appendU32(append(t.get(b), opGlobalSet), t.fuel), opEnd)
}
