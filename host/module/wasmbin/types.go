package wasmbin

import "github.com/jobrunner/runner/abi"

// ValType is a core value type as it is encoded.
type ValType = abi.ValType

const (
	typeI32    = abi.I32
	typeI64    = abi.I64
	typeF32    = ValType(0x7d)
	typeF64    = ValType(0x7c)
	typeV128   = ValType(0x7b)
	typeFunc   = ValType(0x70)
	typeExtern = ValType(0x6f)
)

// funcType is an entry of the type section.
type funcType struct{ params, results []ValType }

func (t funcType) String() string { return abi.Signature(t.params, t.results) }

// limits is the size of a table or memory.
type limits struct {
	min, max uint32
	hasMax   bool
	shared   bool
}

// refused are the value types of later proposals, by their byte.
var refused = map[byte]string{
	0x63: reasonTypedRefs, 0x64: reasonTypedRefs,
	0x69: reasonExceptions, 0x74: reasonExceptions,
	0x65: reasonGC, 0x66: reasonGC, 0x67: reasonGC, 0x68: reasonGC, 0x6a: reasonGC, 0x6b: reasonGC,
	0x6c: reasonGC, 0x6d: reasonGC, 0x6e: reasonGC, 0x71: reasonGC, 0x72: reasonGC, 0x73: reasonGC,
	0x77: reasonGC, 0x78: reasonGC,
}

func (r *reader) valType() ValType {
	switch t := ValType(r.u8()); t {
	case typeI32, typeI64, typeF32, typeF64, typeV128, typeFunc, typeExtern:
		return t
	default:
		if reason := refused[byte(t)]; reason != "" {
			r.unsupported(reason)
		}
		r.malformed("unknown value type")
		return 0
	}
}

func (r *reader) refType() ValType {
	t := r.valType()
	if r.ok() && t != typeFunc && t != typeExtern {
		r.malformed("not a reference type")
	}
	return t
}

func (r *reader) valTypes(what string) []ValType {
	n := r.count(what, 1, maxParams)
	if n == 0 {
		return nil
	}
	ts := make([]ValType, n)
	for i := range ts {
		ts[i] = r.valType()
	}
	return ts
}

func (r *reader) funcType() funcType {
	switch form := r.u8(); form {
	case 0x60:
	case 0x4e, 0x4f, 0x50, 0x5e, 0x5f:
		r.unsupported(reasonGC)
	default:
		r.malformed("unknown form of type")
	}
	return funcType{r.valTypes("parameters"), r.valTypes("results")}
}

func (r *reader) limits() limits {
	var l limits
	flags := r.u8()
	if flags&4 != 0 && flags < 8 {
		r.unsupported(reasonMemory64)
	}
	if flags > 3 {
		r.malformed("unknown flags of limits")
	}
	l.min = r.u32()
	l.shared = flags&2 != 0
	if l.hasMax = flags&1 != 0; l.hasMax {
		l.max = r.u32()
		if r.ok() && l.max < l.min {
			r.malformed("maximum is below the minimum")
		}
	}
	return l
}
