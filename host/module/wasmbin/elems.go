package wasmbin

import "fmt"

// parseElements checks the element section.
func (p *parsed) parseElements(r *reader) {
	for range r.count("element segments", 3, maxElements) {
		p.element(r, nil, nil)
		if !r.ok() {
			return
		}
		p.nElems++
	}
}

// element reads one segment. If out is not nil, it is appended there with
// every function index mapped by fn.
func (p *parsed) element(r *reader, fn func(uint32) uint32, out []byte) []byte {
	start := r.p
	copied := func() {
		if fn != nil {
			out = append(out, r.b[start:r.p]...)
		}
		start = r.p
	}
	index := func(read func(*reader) uint32) {
		copied()
		i := read(r)
		if fn == nil {
			p.declare(i)
		} else {
			out = appendU32(out, fn(i))
		}
		start = r.p
	}
	expr := func() {
		// Only ref.func names a function; it stands alone in its expression.
		if r.ok() && r.left() > 0 && r.b[r.p] == 0xd2 {
			r.p++
			index(p.funcIndex)
			if r.u8() != 0x0b && r.ok() {
				r.malformed("ref.func is followed by another instruction")
			}
			return
		}
		p.constExpr(r)
	}
	flags := r.u32()
	if r.ok() && flags > 7 {
		r.malformed("unknown kind of element segment")
		return out
	}
	active, exprs := flags&1 == 0, flags&4 != 0
	if active {
		t := uint32(0)
		if flags&2 != 0 {
			t = r.u32()
		}
		if r.ok() && t >= uint32(len(p.tables)) {
			r.malformed(fmt.Sprintf("an element segment for table %d of %d", t, len(p.tables)))
		}
		p.constExpr(r)
	}
	if flags&3 != 0 {
		if exprs {
			r.refType()
		} else {
			r.zero("unknown kind of element")
		}
	}
	min := 1
	if exprs {
		min = 3
	}
	for range r.count("elements", min, 10_000_000) {
		if exprs {
			expr()
		} else {
			index(p.funcIndex)
		}
		if !r.ok() {
			return out
		}
	}
	copied()
	return out
}
