package wasmbin

import "fmt"

// class says how an instruction's immediates are encoded and what the walk
// over a function does with it.
type class byte

const (
	clsUnknown   class = iota
	clsPlain           // no immediates
	clsBlock           // block type; opens a construct
	clsLoop            // as clsBlock
	clsIf              // as clsBlock
	clsElse            //
	clsEnd             //
	clsBr              // label
	clsBrIf            // label
	clsBrTable         // labels
	clsStop            // return, unreachable
	clsCall            // function
	clsIndirect        // type, table
	clsLocal           // local
	clsGlobal          // global
	clsTable           // table
	clsTableSet        // table
	clsMem             // alignment, offset
	clsMemSize         // zero
	clsMemGrow         // zero
	clsI32             // signed 32
	clsI64             // signed 64
	clsF32             // 4 bytes
	clsF64             // 8 bytes
	clsSelectT         // vector of one type
	clsRefNull         // reference type
	clsRefFunc         // function
	clsRef             // no immediates, reference types
	clsSignExt         // no immediates, sign extension
	clsBulk            // prefix 0xfc
	clsSIMD            // prefix 0xfd
	clsTail            // refused
	clsException       // refused
	clsTypedRef        // refused
	clsGC              // refused
	clsThread          // refused
)

var classes = buildClasses()

func buildClasses() (t [256]class) {
	set := func(from, to int, c class) {
		for i := from; i <= to; i++ {
			t[i] = c
		}
	}
	t[0x00], t[0x0f] = clsStop, clsStop
	t[0x01] = clsPlain
	t[0x02], t[0x03], t[0x04], t[0x05], t[0x0b] = clsBlock, clsLoop, clsIf, clsElse, clsEnd
	set(0x06, 0x0a, clsException)
	t[0x0c], t[0x0d], t[0x0e] = clsBr, clsBrIf, clsBrTable
	t[0x10], t[0x11] = clsCall, clsIndirect
	t[0x12], t[0x13] = clsTail, clsTail
	t[0x14], t[0x15] = clsTypedRef, clsTail
	t[0x18], t[0x19], t[0x1f] = clsException, clsException, clsException
	set(0x1a, 0x1b, clsPlain)
	t[0x1c] = clsSelectT
	set(0x20, 0x22, clsLocal)
	set(0x23, 0x24, clsGlobal)
	t[0x25], t[0x26] = clsTable, clsTableSet
	set(0x28, 0x3e, clsMem)
	t[0x3f], t[0x40] = clsMemSize, clsMemGrow
	t[0x41], t[0x42], t[0x43], t[0x44] = clsI32, clsI64, clsF32, clsF64
	set(0x45, 0xbf, clsPlain)
	set(0xc0, 0xc4, clsSignExt)
	t[0xd0], t[0xd1], t[0xd2] = clsRefNull, clsRef, clsRefFunc
	t[0xd3] = clsGC
	set(0xd4, 0xd6, clsTypedRef)
	t[0xfb], t[0xfc], t[0xfd], t[0xfe] = clsGC, clsBulk, clsSIMD, clsThread
	return t
}

// Numbers after the prefix 0xfc.
const (
	subMemoryInit = 8 + iota
	subDataDrop
	subMemoryCopy
	subMemoryFill
	subTableInit
	subElemDrop
	subTableCopy
	subTableGrow
	subTableSize
	subTableFill
)

// bulkImmediates reads what follows 0xfc and its number.
func (p *parsed) bulkImmediates(r *reader, sub uint32) {
	switch sub {
	case subMemoryInit, subDataDrop:
		if i := r.u32(); r.ok() && (p.dataCount == nil || i >= *p.dataCount) {
			r.malformed(fmt.Sprintf("data segment %d, which the data count section does not announce", i))
		}
		if sub == subMemoryInit {
			r.zero("a memory other than 0")
		}
	case subMemoryCopy:
		r.zero("a memory other than 0")
		r.zero("a memory other than 0")
	case subMemoryFill:
		r.zero("a memory other than 0")
	case subTableInit, subElemDrop:
		if i := r.u32(); r.ok() && i >= uint32(p.nElems) {
			r.malformed(fmt.Sprintf("element segment %d of %d", i, p.nElems))
		}
		if sub == subTableInit {
			p.tableIndex(r)
		}
	case subTableCopy:
		p.tableIndex(r)
		p.tableIndex(r)
	case subTableGrow, subTableSize, subTableFill:
		p.tableIndex(r)
	default:
		if sub > 7 { // 0 to 7 are saturating conversions
			r.malformed(fmt.Sprintf("unknown instruction 0xfc %d", sub))
		}
	}
}

func (p *parsed) tableIndex(r *reader) {
	if i := r.u32(); r.ok() && i >= uint32(len(p.tables)) {
		r.malformed(fmt.Sprintf("table %d of %d", i, len(p.tables)))
	}
}

// simdImmediates reads the number after 0xfd and what follows, and answers the
// number. Its encoding must be the shortest: a runtime may read it as one byte
// and take the second, which is then 1, for a nop.
func (p *parsed) simdImmediates(r *reader) (sub uint32) {
	at := r.p
	sub = r.u32()
	if !r.ok() {
		return 0
	}
	if sub >= 0x100 {
		r.unsupported(reasonRelaxed)
		return 0
	}
	if r.p-at != lebLen(sub) {
		r.malformed("vector instruction is not encoded in its shortest form")
		return 0
	}
	switch {
	case sub <= 11, sub == 92, sub == 93:
		memarg(r)
	case sub == 12, sub == 13:
		r.skip(16)
	case sub >= 21 && sub <= 34:
		r.u8()
	case sub >= 84 && sub <= 91:
		memarg(r)
		r.u8()
	}
	return sub
}

func memarg(r *reader) {
	if r.u32() >= 32 && r.ok() {
		r.malformed("unknown alignment, or a memory other than 0")
	}
	r.u32()
}

// blockType reads the type of a block and answers how many parameters and
// results it has.
func (p *parsed) blockType(r *reader) (params, results int) {
	v := r.signed(33)
	if !r.ok() || v == -64 {
		return 0, 0
	}
	if v >= 0 {
		if v >= int64(len(p.types)) {
			r.malformed(fmt.Sprintf("block of type %d of %d", v, len(p.types)))
			return 0, 0
		}
		return len(p.types[v].params), len(p.types[v].results)
	}
	b := byte(v & 0x7f)
	switch t := ValType(b); t {
	case typeI32, typeI64, typeF32, typeF64, typeV128, typeFunc, typeExtern:
	default:
		if reason := refused[b]; reason != "" && v >= -64 {
			r.unsupported(reason)
		}
		r.malformed("unknown block type")
	}
	return 0, 1
}
