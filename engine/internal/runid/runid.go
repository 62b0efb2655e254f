// Package runid is the stored form of a run's id, which every store has in common:
// sixteen bytes, and one text for them.
package runid

import "encoding/hex"

// ID is a run's id: less than half of its text, in every index that carries it, and
// of the same order.
type ID [16]byte

// dash reports where the text of a UUID has its dashes.
func dash(i int) bool { return i == 8 || i == 13 || i == 18 || i == 23 }

// Parse reads the canonical lower-case text, and nothing else: a second
// spelling would make two runs of one id.
func Parse(s string) (u ID, ok bool) {
	if len(s) != 36 {
		return u, false
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if dash(i) {
			if s[i] != '-' {
				return u, false
			}
			continue
		}
		v, ok := nibble(s[i])
		if !ok {
			return u, false
		}
		u[n/2] = u[n/2]<<4 | v
		n++
	}
	return u, true
}

func nibble(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// String is the canonical text.
func (u ID) String() string {
	var b [36]byte
	hex.Encode(b[:8], u[:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:], u[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// Format is the text of stored bytes; "" for anything but sixteen of them.
func Format(b []byte) string {
	if len(b) != 16 {
		return ""
	}
	return ID(b).String()
}

// Range returns the lowest and highest id whose text begins with prefix,
// taken literally; ok is false when no id's can.
func Range(prefix string) (low, high ID, ok bool) {
	if len(prefix) > 36 {
		return low, high, false
	}
	for i := range high {
		high[i] = 0xff
	}
	n := 0
	for i := 0; i < len(prefix); i++ {
		if dash(i) {
			if prefix[i] != '-' {
				return low, high, false
			}
			continue
		}
		v, ok := nibble(prefix[i])
		if !ok {
			return low, high, false
		}
		if n%2 == 0 {
			low[n/2], high[n/2] = v<<4, v<<4|0x0f
		} else {
			low[n/2] |= v
			high[n/2] = low[n/2]
		}
		n++
	}
	return low, high, true
}
