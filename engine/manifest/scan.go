package manifest

import (
	"bytes"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner finds the values at a few paths of a JSON text in one pass, without
// building anything: an enqueue renders two templates and must not pay for
// maps of an input that nobody else of the engine looks into.
type scanner struct {
	in    []byte
	at    int
	paths [][]string
	found *[maxTemplateFields]found
}

// found is where the value of a path stands.
type found struct {
	start, end int
	state      foundState
}

type foundState uint8

const (
	absent foundState = iota
	present
	repeated // its key, or one on the way to it, stands twice in one object
)

var errJSON = errors.New("not JSON")

// scan reads the whole text: only its end tells that no key stands twice.
func (s *scanner) scan() error {
	s.space()
	if s.at < len(s.in) && s.in[s.at] == '{' {
		if err := s.object(1<<len(s.paths)-1, 0); err != nil {
			return err
		}
	} else if err := s.skip(); err != nil {
		return err
	}
	s.space()
	if s.at != len(s.in) {
		return errJSON
	}
	return nil
}

// object reads an object whose keys are the segments at level of those paths
// that mask has a bit for. It nests at most maxTemplateDepth deep.
func (s *scanner) object(mask uint32, level int) error {
	s.at++ // {
	var seen uint32
	s.space()
	if s.at < len(s.in) && s.in[s.at] == '}' {
		s.at++
		return nil
	}
	for {
		s.space()
		if s.at >= len(s.in) || s.in[s.at] != '"' {
			return errJSON
		}
		start := s.at
		if err := s.text(); err != nil {
			return err
		}
		key := s.in[start+1 : s.at-1]
		s.space()
		if s.at >= len(s.in) || s.in[s.at] != ':' {
			return errJSON
		}
		s.at++
		s.space()
		match := s.match(key, mask, level)
		start = s.at
		var deeper uint32
		if match != 0 {
			for i, path := range s.paths {
				if bit := uint32(1) << i; match&bit != 0 && len(path) > level+1 {
					deeper |= bit
				}
			}
		}
		var err error
		if deeper != 0 && s.at < len(s.in) && s.in[s.at] == '{' {
			err = s.object(deeper, level+1)
		} else {
			err = s.skip()
		}
		if err != nil {
			return err
		}
		for i := range s.paths {
			bit := uint32(1) << i
			switch {
			case match&bit == 0:
			case seen&bit != 0:
				s.found[i].state = repeated
			case deeper&bit == 0 && s.found[i].state == absent:
				s.found[i] = found{start, s.at, present}
			}
		}
		seen |= match
		s.space()
		if s.at >= len(s.in) {
			return errJSON
		}
		s.at++
		switch s.in[s.at-1] {
		case ',':
		case '}':
			return nil
		default:
			return errJSON
		}
	}
}

// match is the part of mask whose segment at level is the key.
func (s *scanner) match(key []byte, mask uint32, level int) uint32 {
	if bytes.IndexByte(key, '\\') >= 0 {
		plain, problem := unescape(nil, key)
		if problem != "" {
			return 0 // no segment holds such characters
		}
		key = plain
	}
	var match uint32
	for i, path := range s.paths {
		if bit := uint32(1) << i; mask&bit != 0 && path[level] == string(key) {
			match |= bit
		}
	}
	return match
}

func (s *scanner) space() {
	for s.at < len(s.in) {
		switch s.in[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// text moves past a string.
func (s *scanner) text() error {
	for i := s.at + 1; i < len(s.in); {
		n := bytes.IndexByte(s.in[i:], '"')
		if n < 0 {
			return errJSON
		}
		// The quote ends the string unless an odd number of \ stand before it.
		back := i + n
		for back > s.at+1 && s.in[back-1] == '\\' {
			back--
		}
		i += n + 1
		if (i-1-back)%2 == 0 {
			s.at = i
			return nil
		}
	}
	return errJSON
}

// skip moves past any value, without recursion and looking no closer than
// finding its end takes.
func (s *scanner) skip() error {
	depth := 0
	for s.at < len(s.in) {
		switch c := s.in[s.at]; c {
		case '"':
			if err := s.text(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			s.at++
			continue
		case '}', ']':
			if depth == 0 {
				return errJSON
			}
			depth--
			s.at++
		case ' ', '\t', '\n', '\r', ',', ':':
			if depth == 0 {
				return errJSON
			}
			s.at++
			continue
		default:
			start := s.at
			for s.at < len(s.in) && scalarByte(s.in[s.at]) {
				s.at++
			}
			if s.at == start {
				return errJSON
			}
		}
		if depth == 0 {
			return nil
		}
	}
	return errJSON
}

// scalarByte reports whether c may stand in a number, true, false or null.
func scalarByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// unescape appends the text of the inside of a JSON string to out. The problem
// is "" or why its text cannot be a key.
func unescape(out, s []byte) (_ []byte, problem string) {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		i++
		if i == len(s) {
			return out, "is not valid JSON"
		}
		switch c := s[i]; c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(s[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+2 < len(s) && s[i+1] == '\\' && s[i+2] == 'u' {
					low = hex4(s[i+3:])
				}
				// Readers put U+FFFD for half a pair, which makes one key of
				// different inputs.
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					return out, "holds half a surrogate pair"
				}
				i += 6
			}
			switch {
			case r < 0:
				return out, "is not valid JSON"
			case r == 0:
				return out, "holds a NUL character"
			}
			out = utf8.AppendRune(out, r)
		default:
			return out, "is not valid JSON"
		}
	}
	return out, ""
}

// hex4 is the number that the first four bytes spell, -1 if they spell none.
func hex4(s []byte) rune {
	if len(s) < 4 {
		return -1
	}
	var r rune
	for _, c := range s[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
