package wasmbin

import "unicode/utf8"

// reader reads one part of a module. The first problem sticks: what follows
// reads as zero and err says what it was, so that a loop must look at err, and
// a straight sequence only at its end.
type reader struct {
	b    []byte
	p    int
	base int // offset of b[0] in the module
	err  error
}

func (r *reader) left() int { return len(r.b) - r.p }
func (r *reader) ok() bool  { return r.err == nil }

// fail records the first problem.
func (r *reader) fail(kind ErrorKind, detail string) {
	if r.err == nil {
		r.err = &Error{Kind: kind, Offset: r.base + r.p, Detail: detail}
		r.p = len(r.b)
	}
}

func (r *reader) malformed(detail string) { r.fail(Malformed, detail) }

// unsupported records that the module needs a feature which is not served.
func (r *reader) unsupported(reason string) {
	if r.err == nil {
		r.err = &unsupported{reason}
		r.p = len(r.b)
	}
}

func (r *reader) u8() byte {
	if r.p >= len(r.b) {
		r.malformed("unexpected end")
		return 0
	}
	c := r.b[r.p]
	r.p++
	return c
}

// zero reads a byte that must be 0: the index of the only memory.
func (r *reader) zero(what string) {
	if r.u8() != 0 && r.ok() {
		r.malformed(what)
	}
}

// u32 reads an unsigned LEB128 of at most 5 bytes and 32 bits.
func (r *reader) u32() uint32 {
	if r.p < len(r.b) && r.b[r.p] < 0x80 {
		r.p++
		return uint32(r.b[r.p-1])
	}
	var v uint32
	for s := uint(0); s < 35; s += 7 {
		c := r.u8()
		if s == 28 && c > 0x0f {
			break
		}
		v |= uint32(c&0x7f) << s
		if c < 0x80 {
			return v
		}
	}
	r.malformed("integer does not fit 32 bits")
	return 0
}

// signed reads a signed LEB128 of that many bits.
func (r *reader) signed(bits uint) int64 {
	var v int64
	for s := uint(0); s < bits; s += 7 {
		c := r.u8()
		v |= int64(c&0x7f) << s
		if c < 0x80 {
			if left := bits - s; left < 7 {
				// The last byte: what it has beyond the sign bit repeats it.
				if top := int8(c<<1) >> left; top != 0 && top != -1 {
					break
				}
			}
			if c&0x40 != 0 && s+7 < 64 {
				v |= -1 << (s + 7)
			}
			return v
		}
	}
	r.malformed("signed integer is too long")
	return 0
}

// skip passes n bytes and returns them.
func (r *reader) skip(n uint32) []byte {
	if uint64(n) > uint64(r.left()) {
		r.malformed("length beyond the end")
		return nil
	}
	b := r.b[r.p : r.p+int(n) : r.p+int(n)]
	r.p += int(n)
	return b
}

// sub is a reader of the next n bytes.
func (r *reader) sub(n uint32) reader {
	at := r.base + r.p
	return reader{b: r.skip(n), base: at, err: r.err}
}

// count reads a vector's length. Each entry takes at least min bytes, so a
// length that the rest cannot hold is refused before it is believed.
func (r *reader) count(what string, min, limit int) int {
	n := r.u32()
	if !r.ok() {
		return 0
	}
	if uint64(n)*uint64(min) > uint64(r.left()) {
		r.malformed("more " + what + " than bytes")
		return 0
	}
	if n > uint32(limit) {
		r.fail(TooComplex, "too many "+what)
		return 0
	}
	return int(n)
}

// name reads a name, which must be UTF-8.
func (r *reader) name() string {
	n := r.u32()
	if n > maxName {
		r.fail(TooComplex, "name is too long")
		return ""
	}
	b := r.skip(n)
	if !utf8.Valid(b) {
		r.malformed("name is not UTF-8")
		return ""
	}
	return string(b)
}

// end checks that all was read.
func (r *reader) end(what string) {
	if r.ok() && r.left() > 0 {
		r.malformed("trailing bytes after the " + what)
	}
}
