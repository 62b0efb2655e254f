package manifest

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/jobrunner/runner/engine/job"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// The file is read with go-toml's parser of expressions, the only maintained
// one in Go that says where in the file each key and value stands; a report
// with places is the point of this package. That parser leaves two things to
// its caller: that no key is defined twice, which is said here with both
// places, and the inside of numbers and dates, which the same library's
// decoder judges one by one. The decoder is not run over the whole file,
// because it looks for repeated keys in time quadratic in their number: a file
// of a megabyte took it a minute. A fuzz test holds the two together.
//
// The parser's package is called unstable because its API may change between
// minor versions; all use of it is in this file.

const syntaxFix = "see https://toml.io for the syntax"

// kind is what a TOML value is.
type kind uint8

const (
	kindTable kind = iota
	kindList
	kindString
	kindInt
	kindFloat
	kindBool
	kindDate
)

// node is a TOML value with its place.
type node struct {
	kind     kind
	at       int    // offset of the value, or of its key for tables and lists
	text     string // decoded string; source text of other scalars
	items    []*node
	keys     []string // of a table, in the file's order
	children map[string]*node
	keyAt    map[string]int // where each child's key first stands

	header bool // a table with a [header] of its own, or that may never have one
	dotted bool // a table made by a dotted key: only dotted keys may add to it
	closed bool // an inline table or a list of values: nothing may be added
}

func newTable(at int) *node {
	return &node{kind: kindTable, at: at, children: map[string]*node{}, keyAt: map[string]int{}}
}

func (n *node) put(key string, at int, child *node) {
	n.keys = append(n.keys, key)
	n.children[key] = child
	n.keyAt[key] = at
}

// places turns offsets into lines and columns.
type places struct {
	data   []byte
	starts []int // offset of each line
}

func newPlaces(data []byte) *places {
	p := &places{data: data, starts: []int{0}}
	for i, b := range data {
		if b == '\n' {
			p.starts = append(p.starts, i+1)
		}
	}
	return p
}

func (p *places) of(offset int) (line, column int) {
	offset = min(max(offset, 0), len(p.data))
	i := sort.SearchInts(p.starts, offset+1) - 1
	return i + 1, utf8.RuneCount(p.data[p.starts[i]:offset]) + 1
}

// tree parses data. Problems are added to c; the node is nil when there is
// nothing to go on with.
func (c *checker) tree(data []byte) *node {
	b := &builder{c: c, root: newTable(0), data: data}
	b.current = b.root
	b.parser.Reset(data)
	for b.parser.NextExpression() {
		b.expression(b.parser.Expression())
	}
	if err := b.parser.Error(); err != nil {
		at := len(data)
		msg := err.Error()
		var pe *unstable.ParserError
		if errors.As(err, &pe) {
			msg = pe.Message
			at = min(max(cap(data)-cap(pe.Highlight), 0), len(data))
		}
		c.add(at, CodeSyntax, "", "this is not TOML: "+strings.TrimPrefix(msg, "toml: "), syntaxFix)
		return nil
	}
	if len(c.problems) > 0 {
		return nil
	}
	return b.root
}

type builder struct {
	c       *checker
	data    []byte
	parser  unstable.Parser
	root    *node
	current *node  // table that key = value lines go into
	path    string // of current, for messages
	long    bool   // a key was too long
}

type key struct {
	name string
	at   int
}

func (b *builder) keys(it unstable.Iterator) []key {
	var ks []key
	for it.Next() {
		n := it.Node()
		ks = append(ks, key{string(n.Data), int(n.Raw.Offset)})
	}
	return ks
}

func (b *builder) expression(n *unstable.Node) {
	switch n.Kind {
	case unstable.KeyValue:
		b.keyValue(b.current, b.path, n)
	case unstable.Table, unstable.ArrayTable:
		b.header(b.keys(n.Key()), n.Kind == unstable.ArrayTable)
	}
}

// header makes the table of a [header] or [[header]] the current one. After a
// problem the lines beneath it go into a table that nobody reads.
func (b *builder) header(ks []key, list bool) {
	last := ks[len(ks)-1]
	table := newTable(last.at)
	table.header = true
	b.current, b.path = table, ""
	if b.tooLong(ks[0].at, "", ks) {
		return
	}
	b.path = dotted("", ks)
	parent, ok := b.descend(b.root, "", ks[:len(ks)-1], true)
	if !ok {
		return
	}
	old := parent.children[last.name]
	switch {
	case list && old == nil:
		parent.put(last.name, last.at, &node{kind: kindList, at: last.at, items: []*node{table}})
	case list && old.kind == kindList && !old.closed:
		old.items = append(old.items, table)
	case !list && old == nil:
		parent.put(last.name, last.at, table)
	case !list && old.kind == kindTable && !old.header && !old.closed:
		old.header, old.at = true, last.at
		parent.keyAt[last.name] = last.at
		b.current = old
	default:
		b.twice(b.path, last.at, parent.keyAt[last.name])
	}
}

// descend walks to the table at ks, making what is missing. Through headers,
// a list of tables stands for its last one.
func (b *builder) descend(n *node, path string, ks []key, headers bool) (*node, bool) {
	for i, k := range ks {
		next := n.children[k.name]
		if next == nil {
			next = newTable(k.at)
			next.header, next.dotted = !headers, !headers
			n.put(k.name, k.at, next)
		}
		if headers && next.kind == kindList && !next.closed {
			next = next.items[len(next.items)-1]
		}
		if next.kind != kindTable || next.closed || !headers && !next.dotted {
			b.twice(dotted(path, ks[:i+1]), k.at, n.keyAt[k.name])
			return nil, false
		}
		n = next
	}
	return n, true
}

func (b *builder) keyValue(into *node, path string, n *unstable.Node) {
	ks := b.keys(n.Key())
	if b.tooLong(ks[0].at, path, ks) {
		return
	}
	last := ks[len(ks)-1]
	parent, ok := b.descend(into, path, ks[:len(ks)-1], false)
	full := dotted(path, ks)
	value := b.value(n.Value(), full, last.at)
	if !ok {
		return
	}
	if parent.children[last.name] != nil {
		b.twice(full, last.at, parent.keyAt[last.name])
		return
	}
	parent.put(last.name, last.at, value)
}

// value converts n; at is the place of its key, which stands for the place of
// a value that the parser gives none.
func (b *builder) value(n *unstable.Node, path string, at int) *node {
	if n.Raw.Length > 0 {
		at = int(n.Raw.Offset)
	}
	v := &node{at: at, text: string(n.Data)}
	switch n.Kind {
	case unstable.String:
		v.kind = kindString
	case unstable.Integer:
		v.kind = kindInt
		b.judge(v)
	case unstable.Float:
		v.kind = kindFloat
		b.judge(v)
	case unstable.Bool:
		v.kind = kindBool
	case unstable.Array:
		v.kind, v.closed = kindList, true
		for it := n.Children(); it.Next(); {
			item := indexed(path, len(v.items))
			if b.tooLong(at, item, nil) {
				break
			}
			v.items = append(v.items, b.value(it.Node(), item, at))
		}
	case unstable.InlineTable:
		v = newTable(at)
		for it := n.Children(); it.Next(); {
			b.keyValue(v, path, it.Node())
		}
		v.header, v.closed = true, true
	default:
		v.kind = kindDate
		b.judge(v)
	}
	return v
}

// judge reports a number or a date that is none to the decoder.
func (b *builder) judge(v *node) {
	if plainNumber(v.text) {
		return
	}
	var one struct{ V any }
	if err := toml.Unmarshal([]byte("V = "+v.text), &one); err != nil {
		at := v.at
		var de *toml.DecodeError
		if errors.As(err, &de) {
			_, column := de.Position()
			at += max(column-len("V = ")-1, 0)
		}
		b.c.add(at, CodeSyntax, "", "this is not TOML: "+strings.TrimPrefix(err.Error(), "toml: "), syntaxFix)
	}
}

// plainNumber reports whether s is a decimal number as nearly all are.
func plainNumber(s string) bool {
	return s != "" && len(s) <= 18 && (s == "0" || s[0] != '0') && digits(s)
}

// tooLong refuses a key whose full name is longer than maxPath, which bounds
// how deep a file nests as well: every key in it costs its whole path here and
// there, and half a megabyte of "a.a.a." would cost gigabytes.
func (b *builder) tooLong(at int, path string, ks []key) bool {
	n := len(path)
	for _, k := range ks {
		n += 1 + len(k.name)
	}
	if n <= maxPath {
		return false
	}
	if !b.long {
		b.long = true // once: the rest of the file may be made of them
		b.c.add(at, CodeName, "", fmt.Sprintf("the full name of this key is longer than %d bytes", maxPath), "shorten it, or nest less")
	}
	return true
}

// maxPath bounds a key's dotted name, in bytes.
const maxPath = 1000

// twice reports a key that is defined a second time.
func (b *builder) twice(path string, at, first int) {
	line, _ := b.c.places.of(first)
	code, what := CodeDuplicate, path
	if section, name, ok := strings.Cut(path, "."); ok && !strings.Contains(name, ".") {
		switch section {
		case "jobs":
			code = job.CodeDuplicate
			fallthrough
		case "queues", "modules", "schedules":
			what = strings.TrimSuffix(section, "s") + " " + name
		}
	}
	b.c.add(at, code, path, fmt.Sprintf("%s is declared twice, first in line %d", what, line), "keep one of the two, or rename one")
}

// dotted is the path of ks under prefix, each part quoted where TOML needs it.
func dotted(prefix string, ks []key) string {
	for _, k := range ks {
		prefix = join(prefix, k.name)
	}
	return prefix
}

func join(prefix, name string) string {
	if !bare(name) {
		name = fmt.Sprintf("%q", name)
	}
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func bare(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}
