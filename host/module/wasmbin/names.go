package wasmbin

import "unicode/utf8"

// maxFuncName bounds a function's name, which stack traces repeat, in bytes.
const maxFuncName = 255

// functionNames is the body of a name section with the module's and the
// functions' names, every index mapped by fn; nil if there is none or it is
// broken, which is no error.
func (p *parsed) functionNames(fn func(uint32) uint32) []byte {
	if p.names == nil {
		return nil
	}
	r := *p.names
	var module, funcs []byte
	for r.ok() && r.left() > 0 {
		id := r.u8()
		s := r.sub(r.u32())
		switch id {
		case 0:
			module = appendName(nil, cut(s.skip(s.u32())))
		case 1:
			funcs = p.mapNames(&s, fn)
		}
		if !s.ok() {
			return nil
		}
	}
	if !r.ok() || module == nil && funcs == nil {
		return nil
	}
	body := appendName(nil, "name")
	if module != nil {
		body = appendSection(body, 0, module)
	}
	if funcs != nil {
		body = appendSection(body, 1, funcs)
	}
	return body
}

func (p *parsed) mapNames(r *reader, fn func(uint32) uint32) []byte {
	n := r.count("function names", 2, maxFunctions)
	out := make([]byte, 0, len(r.b)+5)
	out = appendU32(out, uint32(n))
	for range n {
		i := p.funcIndex(r)
		out = appendName(appendU32(out, fn(i)), cut(r.skip(r.u32())))
		if !r.ok() {
			return nil
		}
	}
	return out
}

// cut makes a name printable and short enough.
func cut(b []byte) string {
	if !utf8.Valid(b) {
		return "?"
	}
	if len(b) > maxFuncName {
		n := maxFuncName
		for !utf8.RuneStart(b[n]) {
			n--
		}
		b = b[:n]
	}
	return string(b)
}
