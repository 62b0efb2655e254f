package postgres

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Texts are compared and indexed as text, which the server takes to be UTF-8
// without NUL. What is not is escaped with the byte 0x01, which no text of a
// person holds: 0x01 0x01 is NUL, 0x01 0x02 is 0x01 itself, and 0x01 0x03 XX a
// byte, in hex, that is part of no UTF-8. Different texts stay different.
const escape = 0x01

// enc is s as it is stored.
func enc(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 && strings.IndexByte(s, escape) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == 0:
			b.WriteString("\x01\x01")
		case r == escape:
			b.WriteString("\x01\x02")
		case r == utf8.RuneError && n == 1:
			b.WriteString("\x01\x03")
			b.WriteString(hex.EncodeToString([]byte{s[i]}))
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// dec is the text that enc stored.
func dec(b []byte) string {
	s := string(b)
	if strings.IndexByte(s, escape) < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != escape || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		switch s[i] {
		case 1:
			out = append(out, 0)
		case 2:
			out = append(out, escape)
		case 3:
			var raw [1]byte
			if i+2 < len(s) {
				if _, err := hex.Decode(raw[:], []byte(s[i+1:i+3])); err == nil {
					out = append(out, raw[0])
					i += 2
				}
			}
		default:
			out = append(out, escape, s[i])
		}
	}
	return string(out)
}

// encOrNull is s for a nullable column, where "" is NULL.
func encOrNull(s string) *string {
	if s == "" {
		return nil
	}
	s = enc(s)
	return &s
}
