package wasmasm

// BlockType is the type of a block, loop or if.
type BlockType int64

// Empty is the type of a block without parameters and results; Yields is that
// of one with a single result, and Module.Type gives the index for any other.
const Empty BlockType = -64

// Yields is the type of a block with one result.
func Yields(t ValType) BlockType { return BlockType(int64(t) - 0x80) }

// Code writes the instructions of a function body or a constant expression.
// Its methods return it, so that short sequences stand on one line.
type Code struct {
	// Self is the function being written, for recursion.
	Self   Func
	m      *Module
	params uint32
	locals []ValType
	b      []byte
}

// Local reserves a local variable and returns its index.
func (c *Code) Local(t ValType) uint32 {
	c.locals = append(c.locals, t)
	return c.params + uint32(len(c.locals)) - 1
}

func (c *Code) encodeLocals() []byte {
	var groups []byte
	n := uint64(0)
	for i := 0; i < len(c.locals); {
		j := i
		for j < len(c.locals) && c.locals[j] == c.locals[i] {
			j++
		}
		groups = append(appendU(groups, uint64(j-i)), byte(c.locals[i]))
		n++
		i = j
	}
	return append(appendU(nil, n), groups...)
}

// Raw writes bytes as they are.
func (c *Code) Raw(b ...byte) *Code {
	c.b = append(c.b, b...)
	return c
}

// Op writes instructions without immediates.
func (c *Code) Op(ops ...Op) *Code {
	for _, o := range ops {
		if o >= prefixed {
			c.b = appendU(append(c.b, byte(o>>8)), uint64(o&0xff))
			continue
		}
		c.b = append(c.b, byte(o))
	}
	return c
}

func (c *Code) u(op byte, imm ...uint32) *Code {
	c.b = append(c.b, op)
	for _, v := range imm {
		c.b = appendU(c.b, uint64(v))
	}
	return c
}

func (c *Code) fc(sub uint32, imm ...uint32) *Code {
	c.b = appendU(append(c.b, 0xfc), uint64(sub))
	for _, v := range imm {
		c.b = appendU(c.b, uint64(v))
	}
	return c
}

func (c *Code) block(op byte, t BlockType) *Code {
	c.b = appendS(append(c.b, op), int64(t))
	return c
}

// Block, Loop and If open a construct that End closes.
func (c *Code) Block(t BlockType) *Code { return c.block(0x02, t) }
func (c *Code) Loop(t BlockType) *Code  { return c.block(0x03, t) }
func (c *Code) If(t BlockType) *Code    { return c.block(0x04, t) }
func (c *Code) Else() *Code             { return c.Raw(0x05) }
func (c *Code) End() *Code              { return c.Raw(0x0b) }

// Br, BrIf and BrTable leave that many constructs.
func (c *Code) Br(depth uint32) *Code   { return c.u(0x0c, depth) }
func (c *Code) BrIf(depth uint32) *Code { return c.u(0x0d, depth) }

// BrTable jumps by index; the last depth is the default.
func (c *Code) BrTable(depths ...uint32) *Code {
	c.b = appendU(append(c.b, 0x0e), uint64(len(depths)-1))
	for _, d := range depths {
		c.b = appendU(c.b, uint64(d))
	}
	return c
}

// Call calls f; CallIndirect calls the function of table 0 whose index is on the stack.
func (c *Code) Call(f Func) *Code { return c.u(0x10, uint32(f)) }
func (c *Code) CallIndirect(params, results []ValType) *Code {
	return c.u(0x11, c.m.Type(params, results), 0)
}

// Variables.
func (c *Code) LocalGet(i uint32) *Code  { return c.u(0x20, i) }
func (c *Code) LocalSet(i uint32) *Code  { return c.u(0x21, i) }
func (c *Code) LocalTee(i uint32) *Code  { return c.u(0x22, i) }
func (c *Code) GlobalGet(g Global) *Code { return c.u(0x23, uint32(g)) }
func (c *Code) GlobalSet(g Global) *Code { return c.u(0x24, uint32(g)) }

// Constants.
func (c *Code) I32Const(v int32) *Code {
	c.b = appendS(append(c.b, 0x41), int64(v))
	return c
}
func (c *Code) I64Const(v int64) *Code {
	c.b = appendS(append(c.b, 0x42), v)
	return c
}
func (c *Code) F32Const(v float32) *Code {
	c.b = appendF32(append(c.b, 0x43), v)
	return c
}
func (c *Code) F64Const(v float64) *Code {
	c.b = appendF64(append(c.b, 0x44), v)
	return c
}

// SelectT is the select that states its type.
func (c *Code) SelectT(t ValType) *Code { return c.Raw(0x1c, 1, byte(t)) }

// Mem writes a load or store with its constant offset and natural alignment 0.
func (c *Code) Mem(op Op, offset uint32) *Code { return c.u(byte(op), 0, offset) }

// Memory.
func (c *Code) MemorySize() *Code               { return c.Raw(0x3f, 0) }
func (c *Code) MemoryGrow() *Code               { return c.Raw(0x40, 0) }
func (c *Code) MemoryInit(segment uint32) *Code { return c.fc(8, segment, 0) }
func (c *Code) DataDrop(segment uint32) *Code   { return c.fc(9, segment) }
func (c *Code) MemoryCopy() *Code               { return c.fc(10, 0, 0) }
func (c *Code) MemoryFill() *Code               { return c.fc(11, 0) }

// Tables and references.
func (c *Code) TableGet(t uint32) *Code           { return c.u(0x25, t) }
func (c *Code) TableSet(t uint32) *Code           { return c.u(0x26, t) }
func (c *Code) TableInit(segment, t uint32) *Code { return c.fc(12, segment, t) }
func (c *Code) ElemDrop(segment uint32) *Code     { return c.fc(13, segment) }
func (c *Code) TableCopy(dst, src uint32) *Code   { return c.fc(14, dst, src) }
func (c *Code) TableGrow(t uint32) *Code          { return c.fc(15, t) }
func (c *Code) TableSize(t uint32) *Code          { return c.fc(16, t) }
func (c *Code) TableFill(t uint32) *Code          { return c.fc(17, t) }
func (c *Code) RefNull(t ValType) *Code           { return c.Raw(0xd0, byte(t)) }
func (c *Code) RefFunc(f Func) *Code              { return c.u(0xd2, uint32(f)) }

// V128Const writes a vector; SIMD writes a 0xfd instruction with its immediates as bytes.
func (c *Code) V128Const(v [16]byte) *Code { return c.SIMD(12, v[:]...) }
func (c *Code) SIMD(sub uint32, imm ...byte) *Code {
	c.b = append(appendU(append(c.b, 0xfd), uint64(sub)), imm...)
	return c
}
