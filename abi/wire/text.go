package wire

import (
	"strings"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
)

// LogLine is what a guest logs as text that can be stored and shown: cut to
// abi.MaxLogLine, without control characters but newline and tab.
func LogLine(b []byte) string {
	return clip(clean(string(clip(b, abi.MaxLogLine))), abi.MaxLogLine)
}

// Note is a progress note as one line of text, cut to abi.MaxProgressNote.
func Note(b []byte) string {
	s := clip(clean(string(clip(b, abi.MaxProgressNote))), abi.MaxProgressNote)
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, s)
}

// Level is a log level; one above error counts as error.
func Level(level uint32) abi.Level { return min(abi.Level(level), abi.LevelError) }

// Permille is how far a run is, brought into 0 to 1000.
func Permille(p int32) int { return int(min(max(p, 0), 1000)) }

// clean replaces what no terminal and no database should be given: bytes that
// are not UTF-8 and control characters other than newline and tab. It never
// makes s longer than three times its size, and leaves clean text as it is.
func clean(s string) string {
	dirty := func(r rune) bool { return r == utf8.RuneError || control(r) && r != '\n' && r != '\t' }
	if !strings.ContainsFunc(s, dirty) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if dirty(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// clip is the longest prefix of b that has at most max bytes and does not end
// inside a rune.
func clip[T string | []byte](b T, max int) T {
	if len(b) <= max {
		return b
	}
	n := max
	for n > 0 && n > max-utf8.UTFMax && b[n]&0xc0 == 0x80 {
		n--
	}
	return b[:n]
}

// appendString appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		ch := s[i]
		if ch < utf8.RuneSelf {
			if ch >= 0x20 && ch != '"' && ch != '\\' {
				i++
				continue
			}
			dst = append(dst, s[from:i]...)
			switch ch {
			case '"', '\\':
				dst = append(dst, '\\', ch)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\t':
				dst = append(dst, '\\', 't')
			case '\r':
				dst = append(dst, '\\', 'r')
			default:
				const digits = "0123456789abcdef"
				dst = append(dst, '\\', 'u', '0', '0', digits[ch>>4], digits[ch&15])
			}
			i++
			from = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(append(dst, s[from:i]...), "\ufffd"...)
			from = i + 1
		}
		i += n
	}
	return append(append(dst, s[from:]...), '"')
}
