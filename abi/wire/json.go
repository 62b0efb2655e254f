package wire

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
)

// JSONProblem says what kind of rule a JSON text breaks.
type JSONProblem uint8

const (
	// JSONSyntax: it is not JSON (RFC 8259).
	JSONSyntax JSONProblem = iota
	// JSONEncoding: it is not UTF-8.
	JSONEncoding
	// JSONTooLarge: it has more bytes than allowed; nothing else was looked at.
	JSONTooLarge
	// JSONTooDeep: it nests deeper than abi.MaxJSONDepth.
	JSONTooDeep
	// JSONDuplicateKey: an object has the same key twice, and readers disagree
	// on which of the values counts.
	JSONDuplicateKey
)

// JSONError is why CheckJSON refused a text. Offset is the byte where the
// problem was found (for JSONTooLarge the limit).
type JSONError struct {
	Problem JSONProblem
	Offset  int
	Reason  string
}

func (e *JSONError) Error() string { return e.Reason + " at byte " + strconv.Itoa(e.Offset) }

// CheckJSON reports the first reason why b is not one strict JSON text of at
// most max bytes, as a *JSONError, or nil. Strict means RFC 8259 with valid
// UTF-8, no duplicate keys (compared as a reader decodes them, so "a" and
// "\u0061" are the same) and at most abi.MaxJSONDepth nested containers. White
// space around the value is allowed. Values are not interpreted: numbers of any
// size, \u0000 and lone surrogates pass, because they are stored as bytes.
//
// It allocates only for an error, for a key that is spelled with escapes, and
// now and then for a text whose open objects have thousands of keys. It is safe
// for concurrent use.
func CheckJSON(b []byte, max int) error { return checkJSON(b, max, 0) }

// checkJSON is CheckJSON of a text with so many levels around the values that are
// bounded in theirs: what may be sent by itself may be sent in an envelope.
func checkJSON(b []byte, max, around int) error {
	if len(b) > max {
		return &JSONError{JSONTooLarge, max, "JSON of " + strconv.Itoa(len(b)) + " bytes is larger than the " + strconv.Itoa(max) + " allowed"}
	}
	c := checkers.Get().(*checker)
	c.b = b
	err := c.text(-around)
	c.b = nil
	if cap(c.keys) > maxPooledKeys {
		c.keys = nil
	}
	c.keys = c.keys[:0]
	checkers.Put(c)
	return err
}

// checkers keeps key stacks for reuse.
var checkers = sync.Pool{New: func() any { return new(checker) }}

const (
	// maxPooledKeys bounds the key stack that is kept for the next call: 96 KiB.
	maxPooledKeys = 4096
	// pairwiseKeys is up to how many keys of one object every new key is
	// compared with those before it; beyond, they are sorted by hash once.
	pairwiseKeys = 16
)

// key is where an object's key stands between its quotes.
type key struct {
	start, end int
	hash       uint64 // only once its object has outgrown pairwiseKeys
}

// checker walks b. keys is a stack: an object's keys lie together on top of
// those of the objects around it.
type checker struct {
	b    []byte
	keys []key
}

// text checks the whole of b, which lies at that depth.
func (c *checker) text(depth int) error {
	i, err := c.value(c.space(0), depth)
	if err != nil {
		return err
	}
	if i = c.space(i); i != len(c.b) {
		return c.unexpected(i, "the end after the value")
	}
	return nil
}

func (c *checker) space(i int) int {
	for i < len(c.b) {
		switch c.b[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// value checks the value that starts at i and returns the index after it.
func (c *checker) value(i, depth int) (int, error) {
	if i >= len(c.b) {
		return i, c.unexpected(i, "a value")
	}
	switch ch := c.b[i]; {
	case ch == '"':
		end, _, err := c.str(i)
		return end, err
	case ch == '{':
		return c.object(i, depth+1)
	case ch == '[':
		return c.array(i, depth+1)
	case ch == '-' || ch-'0' <= 9:
		return c.number(i)
	case ch == 't':
		return c.literal(i, "true")
	case ch == 'f':
		return c.literal(i, "false")
	case ch == 'n':
		return c.literal(i, "null")
	}
	return i, c.unexpected(i, "a value")
}

func (c *checker) literal(i int, word string) (int, error) {
	for k := range len(word) {
		if i+k >= len(c.b) || c.b[i+k] != word[k] {
			return i, c.unexpected(i+k, word)
		}
	}
	return i + len(word), nil
}

func (c *checker) number(i int) (int, error) {
	b := c.b
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && b[i]-'1' <= 8:
		i = c.digits(i)
	default:
		return i, c.unexpected(i, "a digit")
	}
	if i < len(b) && b[i] == '.' {
		n := c.digits(i + 1)
		if n == i+1 {
			return n, c.unexpected(n, "a digit")
		}
		i = n
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := c.digits(i)
		if n == i {
			return n, c.unexpected(n, "a digit")
		}
		i = n
	}
	return i, nil
}

func (c *checker) digits(i int) int {
	for i < len(c.b) && c.b[i]-'0' <= 9 {
		i++
	}
	return i
}

func (c *checker) array(i, depth int) (int, error) {
	if depth > abi.MaxJSONDepth {
		return i, c.tooDeep(i)
	}
	i = c.space(i + 1)
	if i < len(c.b) && c.b[i] == ']' {
		return i + 1, nil
	}
	for {
		var err error
		if i, err = c.value(i, depth); err != nil {
			return i, err
		}
		i = c.space(i)
		if i >= len(c.b) {
			return i, c.unexpected(i, "',' or ']'")
		}
		switch c.b[i] {
		case ',':
			i = c.space(i + 1)
		case ']':
			return i + 1, nil
		default:
			return i, c.unexpected(i, "',' or ']'")
		}
	}
}

func (c *checker) object(i, depth int) (int, error) {
	if depth > abi.MaxJSONDepth {
		return i, c.tooDeep(i)
	}
	i = c.space(i + 1)
	if i < len(c.b) && c.b[i] == '}' {
		return i + 1, nil
	}
	base := len(c.keys)
	for {
		if i >= len(c.b) || c.b[i] != '"' {
			return i, c.unexpected(i, "a key in quotes")
		}
		end, escaped, err := c.str(i)
		if err != nil {
			return end, err
		}
		if err := c.add(base, i+1, end-1, escaped); err != nil {
			return i, err
		}
		i = c.space(end)
		if i >= len(c.b) || c.b[i] != ':' {
			return i, c.unexpected(i, "':' after the key")
		}
		if i, err = c.value(c.space(i+1), depth); err != nil {
			return i, err
		}
		i = c.space(i)
		if i >= len(c.b) {
			return i, c.unexpected(i, "',' or '}'")
		}
		switch c.b[i] {
		case ',':
			i = c.space(i + 1)
		case '}':
			err := c.distinct(base)
			c.keys = c.keys[:base]
			return i + 1, err
		default:
			return i, c.unexpected(i, "',' or '}'")
		}
	}
}

// add pushes the key at [start, end) and, while the object is small, compares
// it with the object's other keys. An escaped key is compared as decoded, which
// is done by hash and bytes in distinct, so it makes the object count as large.
func (c *checker) add(base, start, end int, escaped bool) error {
	k := key{start: start, end: end}
	if escaped {
		k.end = -end
	}
	text := c.b[start:end]
	if own := c.keys[base:]; len(own) < pairwiseKeys && !escaped {
		for _, o := range own {
			if o.end > 0 && o.end-o.start == len(text) && bytes.Equal(c.b[o.start:o.end], text) {
				return c.duplicate(k)
			}
		}
	}
	c.keys = append(c.keys, k)
	return nil
}

// distinct compares the keys of the object that closes, where add did not.
func (c *checker) distinct(base int) error {
	own := c.keys[base:]
	if len(own) <= pairwiseKeys && !slices.ContainsFunc(own, func(k key) bool { return k.end < 0 }) {
		return nil
	}
	for i := range own {
		own[i].hash = maphash.Bytes(hashSeed, c.decoded(own[i]))
	}
	slices.SortFunc(own, func(x, y key) int {
		if x.hash != y.hash {
			if x.hash < y.hash {
				return -1
			}
			return 1
		}
		return x.start - y.start
	})
	// Of several duplicates the first in the text is reported.
	var first *key
	for i := range own {
		for j := i + 1; j < len(own) && own[j].hash == own[i].hash; j++ {
			if bytes.Equal(c.decoded(own[i]), c.decoded(own[j])) {
				if first == nil || own[j].start < first.start {
					first = &own[j]
				}
				break // a third equal key is found from the second
			}
		}
	}
	if first != nil {
		return c.duplicate(*first)
	}
	return nil
}

// hashSeed is drawn per process, so that no input can be made of keys that
// collide.
var hashSeed = maphash.MakeSeed()

// decoded is the key as a reader decodes it.
func (c *checker) decoded(k key) []byte {
	if k.end >= 0 {
		return c.b[k.start:k.end]
	}
	var s string
	// It was checked to be a string, so this cannot fail.
	_ = json.Unmarshal(c.b[k.start-1:-k.end+1], &s)
	return []byte(s)
}

func (c *checker) unexpected(i int, want string) error {
	if i >= len(c.b) {
		return &JSONError{JSONSyntax, len(c.b), "unexpected end, want " + want}
	}
	if c.b[i] < utf8.RuneSelf {
		return &JSONError{JSONSyntax, i, "unexpected " + strconv.QuoteRuneToASCII(rune(c.b[i])) + ", want " + want}
	}
	r, n := utf8.DecodeRune(c.b[i:])
	if r == utf8.RuneError && n == 1 {
		return &JSONError{JSONEncoding, i, "invalid UTF-8"}
	}
	return &JSONError{JSONSyntax, i, "unexpected " + strconv.QuoteRuneToASCII(r) + ", want " + want}
}

func (c *checker) tooDeep(i int) error {
	return &JSONError{JSONTooDeep, i, "nested deeper than " + strconv.Itoa(abi.MaxJSONDepth)}
}

// maxQuotedKey bounds how much of a key an error repeats, in bytes.
const maxQuotedKey = 64

func (c *checker) duplicate(k key) error {
	text := c.decoded(k)
	quoted := strconv.Quote(string(clip(text, maxQuotedKey)))
	if len(text) > maxQuotedKey {
		quoted += "…"
	}
	return &JSONError{JSONDuplicateKey, k.start - 1, "duplicate key " + quoted}
}
