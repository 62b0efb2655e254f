package call

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// redacted stands where a secret was.
const redacted = "[redacted]"

const (
	// minRedacted is the shortest secret that is looked for, in bytes: a
	// shorter one would be found in the middle of ordinary words.
	minRedacted = 4
	// minRedactedLine is the shortest line of a secret of several lines that is
	// looked for by itself, in bytes: a key in PEM is logged line by line.
	minRedactedLine = 8
	// beyondCut is how much is read beyond where a text will be cut, in bytes,
	// so that a secret across the cut is recognised.
	beyondCut = 4 << 10
)

// learn notes a secret's value that the guest has read.
func (s *State) learn(value string) {
	add := func(text string, shortest int) {
		if len(text) >= shortest && !slices.Contains(s.secrets, text) {
			s.secrets = append(s.secrets, text)
		}
	}
	add(value, minRedacted)
	if lines := strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' }); len(lines) > 1 {
		for _, line := range lines {
			add(line, minRedactedLine)
		}
	}
	add(jsonText(value), minRedacted) // JSON that is logged
	// The longest first, in case one is a part of another.
	slices.SortFunc(s.secrets, func(a, b string) int { return len(b) - len(a) })
}

// jsonText is text as it stands between the quotes of a JSON string.
func jsonText(text string) string {
	b := quoteJSON(text)
	return b[1 : len(b)-1]
}

func quoteJSON(text string) string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string always encodes
	return strings.TrimSuffix(buf.String(), "\n")
}

// redact replaces exact matches of the secrets read so far.
func (s *State) redact(text string) string {
	for _, v := range s.secrets {
		text = strings.ReplaceAll(text, v, redacted)
	}
	return text
}

// redactJSON replaces them in the strings and numbers of b, which is JSON, and
// answers JSON: b itself if there is nothing to replace.
func (s *State) redactJSON(b []byte) []byte {
	if len(s.secrets) == 0 {
		return b
	}
	var out []byte
	from := 0
	put := func(lo, hi int, literal string) {
		out = append(append(out, b[from:lo]...), literal...)
		from = hi
	}
	for i := 0; i < len(b); {
		switch ch := b[i]; {
		case ch == '"':
			end := i + 1
			for b[end] != '"' {
				if b[end] == '\\' {
					end++
				}
				end++
			}
			end++
			var text string
			if json.Unmarshal(b[i:end], &text) == nil {
				if clean := s.redact(text); clean != text {
					put(i, end, quoteJSON(clean))
				}
			}
			i = end
		case ch == '-' || ch-'0' <= 9:
			end := i + 1
			for end < len(b) && (b[end]-'0' <= 9 || strings.IndexByte("+-.eE", b[end]) >= 0) {
				end++
			}
			if text := string(b[i:end]); s.redact(text) != text {
				put(i, end, strconv.Quote(redacted))
			}
			i = end
		default:
			i++
		}
	}
	if out == nil {
		return b
	}
	return append(out, b[from:]...)
}
