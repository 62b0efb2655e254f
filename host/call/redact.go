package call

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// redacted stands where a secret was.
const redacted = "[redacted]"

// minRedacted is the shortest secret that is looked for, in bytes: a shorter
// one would be found in the middle of ordinary words.
const minRedacted = 4

// learn notes a secret's value that the guest has read.
func (s *State) learn(value string) {
	if len(value) >= minRedacted {
		s.secrets = append(s.secrets, value)
	}
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
					var buf bytes.Buffer
					enc := json.NewEncoder(&buf)
					enc.SetEscapeHTML(false)
					_ = enc.Encode(clean) // a string always encodes
					put(i, end, strings.TrimSuffix(buf.String(), "\n"))
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
