package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// checker collects the problems of one file.
type checker struct {
	file     string
	places   *places
	problems []Problem
	more     int // problems beyond maxProblems
}

// maxProblems bounds a report. A file with more is not a manifest with
// problems but something else.
const maxProblems = 1000

// add reports a problem at an offset of the file.
func (c *checker) add(at int, code, key, message, fix string) {
	if len(c.problems) == maxProblems {
		c.more++
		return
	}
	line, column := c.places.of(at)
	c.problems = append(c.problems, Problem{
		File: c.file, Line: line, Column: column,
		Code: code, Key: key, Message: message, Fix: fix,
	})
}

// table reads the keys of one TOML table and remembers which were asked for,
// so that close can refuse the rest.
type table struct {
	c     *checker
	n     *node
	path  string
	known []string
}

// name is the full path of a key.
func (t *table) name(key string) string { return join(t.path, key) }

// get is the value of a key, nil when it is absent.
func (t *table) get(key string) *node {
	t.known = append(t.known, key)
	if t.n == nil {
		return nil
	}
	return t.n.children[key]
}

// bad reports a problem with the value of a key, at the value.
func (t *table) bad(key, code, message, fix string) {
	at := t.n.at
	if v := t.n.children[key]; v != nil {
		at = v.at
	}
	t.c.add(at, code, t.name(key), t.name(key)+" "+message, fix)
}

func (t *table) wrongType(key, want, example string) {
	t.bad(key, CodeType, "must be "+want+"; this is "+t.n.children[key].describe(), "write "+key+" = "+example)
}

// describe says what a value is, for a person.
func (n *node) describe() string {
	switch n.kind {
	case kindTable:
		return "a table"
	case kindList:
		return "a list"
	case kindString:
		return "the text " + quote(n.text)
	case kindInt:
		return "the whole number " + clip(n.text)
	case kindFloat:
		return "the number " + clip(n.text)
	case kindBool:
		return n.text
	}
	return "the date or time " + clip(n.text)
}

// indexed is the path of a list's item.
func indexed(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// clip and quote bound what a message repeats of the file.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

func quote(s string) string { return strconv.Quote(clip(s)) }

// text reads a string. The result is false when it is absent or a problem.
func (t *table) text(key, example string) (string, bool) {
	v := t.get(key)
	if v == nil {
		return "", false
	}
	if v.kind != kindString {
		t.wrongType(key, "a text in quotes", strconv.Quote(example))
		return "", false
	}
	return v.text, true
}

// flag reads a boolean.
func (t *table) flag(key string, def bool) bool {
	v := t.get(key)
	if v == nil {
		return def
	}
	if v.kind != kindBool {
		t.wrongType(key, "true or false", strconv.FormatBool(!def))
		return def
	}
	return v.text == "true"
}

// count reads a whole number from lo to hi; omitted says what
// leaving it out means, "" that it may not be left out.
func (t *table) count(key string, def, lo, hi int, omitted string) int {
	v := t.get(key)
	if v == nil {
		return def
	}
	if v.kind != kindInt {
		t.wrongType(key, "a whole number", strconv.Itoa(max(def, lo)))
		return def
	}
	n, err := strconv.ParseInt(v.text, 0, 64) // base 0: 0x, 0o, 0b and _, which TOML has too
	if err != nil || n < int64(lo) || n > int64(hi) {
		fix := ""
		if omitted != "" {
			fix = "leave it out for " + omitted
		}
		t.bad(key, CodeValue, fmt.Sprintf("must be from %d to %d; this is %s", lo, hi, clip(v.text)), fix)
		return def
	}
	return int(n)
}

// choice reads one of a few words.
func (t *table) choice(key, def string, of ...string) string {
	s, ok := t.text(key, def)
	if !ok {
		return def
	}
	if !slices.Contains(of, s) {
		t.bad(key, CodeValue, "must be one of "+words(of)+"; this is "+quote(s), t.c.suggest(s, slices.Values(of)))
		return def
	}
	return s
}

// duration reads a duration from lo to hi; 0 is in range only if lo is 0.
func (t *table) duration(key string, def, lo, hi time.Duration) time.Duration {
	v := t.get(key)
	if v == nil {
		return def
	}
	if v.kind != kindString {
		example := strconv.Quote(FormatDuration(def))
		if v.kind == kindInt {
			example = strconv.Quote(clip(v.text)+"s") + " if seconds are meant"
		}
		t.wrongType(key, "a duration in quotes, with a unit", example)
		return def
	}
	d, err := ParseDuration(v.text)
	if err != nil {
		t.bad(key, CodeValue, "is not a duration: "+err.Error(), `a duration is a number and a unit: ms, s, m, h, d or w, as in "90s" or "1d12h"`)
		return def
	}
	if d < lo || d > hi {
		t.bad(key, CodeValue, fmt.Sprintf("must be from %s to %s; this is %s", FormatDuration(lo), FormatDuration(hi), clip(v.text)), "")
		return def
	}
	return d
}

// item is an entry of a list of texts.
type item struct {
	text string
	path string
	at   int
}

// texts reads a list of at most maxGrants strings; more are a problem and none
// are returned, as wrong types are.
func (t *table) texts(key, example string) []item {
	v := t.get(key)
	if v == nil {
		return nil
	}
	if v.kind != kindList {
		t.wrongType(key, "a list of texts", "["+strconv.Quote(example)+"]")
		return nil
	}
	if !t.few(key, len(v.items)) {
		return nil
	}
	var list []item
	for i, n := range v.items {
		path := indexed(t.name(key), i)
		if n.kind != kindString {
			t.c.add(n.at, CodeType, path, path+" must be a text in quotes; this is "+n.describe(), "")
			continue
		}
		list = append(list, item{n.text, path, n.at})
	}
	return list
}

// few refuses a value with more than maxGrants entries.
func (t *table) few(key string, n int) bool {
	if n > maxGrants {
		t.bad(key, CodeValue, fmt.Sprintf("has %d entries; at most %d are allowed", n, maxGrants), "")
		return false
	}
	return true
}

// table reads a table. The result is nil when it is absent or a problem.
func (t *table) table(key, example string) *table {
	v := t.get(key)
	if v == nil {
		return nil
	}
	if v.kind != kindTable {
		t.wrongType(key, "a table", example)
		return nil
	}
	return &table{c: t.c, n: v, path: t.name(key)}
}

// noName stands in messages for a name that is refused, and may hold anything. It is
// no name itself.
const noName = "NAME"

// tables reads the named tables of a section, as in [jobs.NAME], in the
// file's order, and refuses names that are none: each is told noName then.
func (t *table) tables(section string, each func(name string, t *table)) {
	v := t.get(section)
	if v == nil {
		return
	}
	one := strings.TrimSuffix(section, "s")
	if v.kind != kindTable {
		t.c.add(v.at, CodeType, section, fmt.Sprintf("%s must hold one table for each %s; this is %s", section, one, v.describe()), "write ["+section+".NAME]")
		return
	}
	for _, name := range v.keys {
		child, path := v.children[name], join(section, name)
		if problem := nameProblem(name); problem != "" {
			t.c.add(v.keyAt[name], CodeName, path, fmt.Sprintf("the %s name %s %s", one, quote(name), problem),
				"a name is 1 to 100 of a-z 0-9 . _ - and starts with a letter or a digit")
			name = noName // its table may have problems of its own
		}
		if child.kind != kindTable {
			t.c.add(child.at, CodeType, path, fmt.Sprintf("%s must be a table; this is %s", path, child.describe()), "write ["+path+"]")
			continue
		}
		each(name, &table{c: t.c, n: child, path: path})
	}
}

// close refuses the keys that nobody asked for.
func (t *table) close() {
	for _, key := range t.n.keys {
		if slices.Contains(t.known, key) {
			continue
		}
		v, path := t.n.children[key], t.name(key)
		where := "the file"
		if t.path != "" {
			where = t.path
		}
		fix := t.c.suggest(key, slices.Values(t.known))
		section, name, nested := strings.Cut(t.path, ".")
		if v.kind == kindTable && nested && !strings.Contains(name, ".") && fix == "" &&
			slices.Contains([]string{"queues", "modules", "jobs", "schedules"}, section) {
			fix = fmt.Sprintf("a name with a dot is quoted: [%s.%q]", section, name+"."+key)
		}
		if fix == "" {
			fix = "it may hold " + words(t.known)
		}
		t.c.add(t.n.keyAt[key], CodeUnknownKey, path, fmt.Sprintf("%s has no key %s", where, quote(key)), fix)
	}
}
