package wire

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// str checks the string whose quote is at i and returns the index after its
// closing quote, and whether it has escapes.
func (c *checker) str(i int) (end int, escaped bool, err error) {
	b := c.b
	i++
	for {
		// Eight plain bytes at a time.
		for i+8 <= len(b) && plain8(binary.LittleEndian.Uint64(b[i:])) {
			i += 8
		}
		if i >= len(b) {
			return i, escaped, c.unexpected(i, "'\"' at the end of a string")
		}
		switch ch := b[i]; {
		case ch == '"':
			return i + 1, escaped, nil
		case ch == '\\':
			escaped = true
			if i, err = c.escape(i); err != nil {
				return i, escaped, err
			}
		case ch < 0x20:
			return i, escaped, &JSONError{JSONSyntax, i, "control character " + strconv.QuoteRuneToASCII(rune(ch)) + " in a string"}
		case ch < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 {
				return i, escaped, &JSONError{JSONEncoding, i, "invalid UTF-8"}
			}
			i += n
		}
	}
}

// plain8 reports whether none of w's eight bytes is a quote, a backslash, a
// control character or outside ASCII. Each term raises the high bit of a byte
// that is not plain; borrows out of such a byte may raise others, which only
// costs the slow path.
func plain8(w uint64) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return (w|(w-ones*0x20)|(quote-ones)|(slash-ones))&high == 0
}

func (c *checker) escape(i int) (int, error) {
	b := c.b
	if i+1 >= len(b) {
		return i, c.unexpected(i+1, "an escape")
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, nil
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if k >= len(b) || !hex(b[k]) {
				return k, c.unexpected(k, "a hexadecimal digit")
			}
		}
		return i + 6, nil
	}
	return i, c.unexpected(i+1, "an escape")
}

func hex(ch byte) bool { return ch-'0' <= 9 || (ch|0x20)-'a' <= 5 }
