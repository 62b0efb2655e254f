package wasmbin

import "fmt"

// constant is what a constant expression is known to be worth.
type constant struct {
	known bool  // an i32 that follows from the module alone
	value int32 // if known
}

// maxConstDepth bounds the operands of one constant expression.
const maxConstDepth = 1_000

// constExpr reads a constant expression. Types are not checked: the runtime
// does that, wherever the expression is kept.
func (p *parsed) constExpr(r *reader) constant {
	var stack []constant
	push := func(c constant) {
		if stack = append(stack, c); len(stack) > maxConstDepth {
			r.fail(TooComplex, "constant expression is too deep")
		}
	}
	for r.ok() {
		switch op := r.u8(); op {
		case 0x41:
			push(constant{true, int32(r.signed(32))})
		case 0x42:
			r.signed(64)
			push(constant{})
		case 0x43:
			r.skip(4)
			push(constant{})
		case 0x44:
			r.skip(8)
			push(constant{})
		case 0x23: // global.get: its value is the host's or another global's
			if i := r.u32(); r.ok() && i >= uint32(len(p.globals)) {
				r.malformed(fmt.Sprintf("global %d of %d so far", i, len(p.globals)))
			}
			push(constant{})
		case 0xd0:
			r.refType()
			push(constant{})
		case 0xd2:
			p.declare(p.funcIndex(r))
			push(constant{})
		case 0xfd:
			if r.u8() != 0x0c {
				r.malformed("not a constant instruction")
			}
			r.skip(16)
			push(constant{})
		case 0x6a, 0x6b, 0x6c, 0x7c, 0x7d, 0x7e:
			p.extConst = true
			if len(stack) < 2 {
				r.malformed("constant expression lacks an operand")
				return constant{}
			}
			x, y := stack[len(stack)-2], stack[len(stack)-1]
			stack = stack[:len(stack)-2]
			z := constant{known: x.known && y.known && op < 0x7c}
			if z.known {
				switch op {
				case 0x6a:
					z.value = x.value + y.value
				case 0x6b:
					z.value = x.value - y.value
				case 0x6c:
					z.value = x.value * y.value
				}
			}
			push(z)
		case 0x0b:
			if len(stack) != 1 {
				r.malformed("constant expression has not one value")
				return constant{}
			}
			return stack[0]
		case 0xfb:
			r.unsupported(reasonGC)
		default:
			r.malformed("not a constant instruction")
		}
	}
	return constant{}
}
