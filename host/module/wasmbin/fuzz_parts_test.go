package wasmbin_test

import (
	"encoding/binary"
	"testing"
)

// part is one section of a module, or of the code section one function.
type part struct {
	id   byte
	body []byte
}

// split cuts well-formed bytes at their lengths: a module into sections.
func split(tb testing.TB, b []byte) (parts []part) {
	tb.Helper()
	for b = b[8:]; len(b) > 0; {
		n, k := binary.Uvarint(b[1:])
		if k <= 0 || uint64(len(b)) < 1+uint64(k)+n {
			tb.Fatal("the fixture is not well-formed")
		}
		parts = append(parts, part{b[0], b[1+k : 1+k+int(n)]})
		b = b[1+k+int(n):]
	}
	return parts
}

func join(parts []part) []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	for _, p := range parts {
		b = append(binary.AppendUvarint(append(b, p.id), uint64(len(p.body))), p.body...)
	}
	return b
}

// withoutCustom is b without its custom sections.
func withoutCustom(tb testing.TB, b []byte) []byte {
	tb.Helper()
	var kept []part
	for _, p := range split(tb, b) {
		if p.id != 0 {
			kept = append(kept, p)
		}
	}
	return join(kept)
}

// bodies cuts a code section into functions.
func bodies(tb testing.TB, code []byte) (out [][]byte) {
	tb.Helper()
	count, k := binary.Uvarint(code)
	code = code[k:]
	for range count {
		n, k := binary.Uvarint(code)
		out = append(out, code[k:k+int(n)])
		code = code[k+int(n):]
	}
	return out
}

// replaceCode gives the function at that index another body.
func replaceCode(tb testing.TB, parts []part, index int, body []byte) []byte {
	tb.Helper()
	parts = append([]part(nil), parts...)
	for i := range parts {
		if parts[i].id != 10 {
			continue
		}
		all := bodies(tb, parts[i].body)
		all[index%len(all)] = body
		code := binary.AppendUvarint(nil, uint64(len(all)))
		for _, f := range all {
			code = append(binary.AppendUvarint(code, uint64(len(f))), f...)
		}
		parts[i].body = code
	}
	return join(parts)
}

// FuzzFunction puts any bytes into one function of a valid module, so that
// mutation does not have to keep lengths right.
func FuzzFunction(f *testing.F) {
	parts := split(f, everyInstruction(f))
	for _, p := range parts {
		if p.id == 10 {
			for i, b := range bodies(f, p.body) {
				f.Add(uint8(i), b)
			}
		}
	}
	for seed := range uint64(8) {
		for _, p := range split(f, build(f, generate(seed))) {
			if p.id == 10 {
				for i, b := range bodies(f, p.body) {
					f.Add(uint8(i), b)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, index uint8, body []byte) {
		if len(body) < 1<<14 {
			checkModule(t, replaceCode(t, parts, int(index), body))
		}
	})
}

// FuzzSection puts any bytes into one section of a valid module.
func FuzzSection(f *testing.F) {
	parts := split(f, everyInstruction(f))
	for i, p := range parts {
		f.Add(uint8(i), p.id, p.body)
	}
	f.Add(uint8(1), uint8(4), []byte{1, 0x70, 1, 2, 5})
	f.Add(uint8(1), uint8(13), []byte{1, 0, 0})
	f.Fuzz(func(t *testing.T, at, id uint8, body []byte) {
		if len(body) > 1<<14 {
			return
		}
		changed := append([]part(nil), parts...)
		changed[int(at)%len(changed)] = part{id, body}
		checkModule(t, join(changed))
	})
}
