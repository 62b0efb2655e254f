package postgres

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Any text comes back as it was, and what is stored the server can take.
func FuzzTextsComeBack(f *testing.F) {
	for _, s := range []string{"", "plain", "a\x00b", "\x01", "\x01\x01", "\x01\x03ff", "\xff\xfe", "ä\x00\x80", "\x00", "� is itself"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		stored := enc(s)
		if !utf8.ValidString(stored) || strings.IndexByte(stored, 0) >= 0 {
			t.Fatalf("%q is stored as %q", s, stored)
		}
		if got := dec([]byte(stored)); got != s {
			t.Fatalf("%q came back as %q", s, got)
		}
	})
}

// Whatever the database holds is read without a panic.
func FuzzTextsAreRead(f *testing.F) {
	f.Add([]byte("\x01"))
	f.Add([]byte("\x01\x03f"))
	f.Add([]byte("\x01\x03zz\x01\x09"))
	f.Fuzz(func(t *testing.T, b []byte) { dec(b) })
}
