package manifest

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// Template is a text with {path.to.field} over a run's input and {run.id}.
// The zero Template renders "". It is a value and safe for concurrent use.
type Template struct {
	None bool // tenant = "none": renders ""
	p    *program
}

// program is a parsed template.
type program struct {
	source string
	what   string // "idempotency key" or "tenant", for messages
	most   int    // bytes that it may render
	parts  []part
	paths  [][]string // of the input's fields, without repeats
	runID  bool
}

// part is a literal, or field (an index of paths, runIDField for the run's id).
type part struct {
	literal string
	field   int
}

const (
	literalPart = -1
	runIDField  = -2
)

// Bounds of a template, far above what a readable one needs. The scanner's
// mask has a bit for each field.
const (
	maxTemplateFields = 16
	maxTemplateDepth  = 16
)

// ParseKey parses the template of an idempotency key. "{run.id}" on its own
// says that runs are never deduplicated.
func ParseKey(source string) (Template, error) {
	return parseTemplate(source, "idempotency key", job.MaxKey)
}

// ParseLimitKey parses the template of a concurrency key.
func ParseLimitKey(source string) (Template, error) {
	t, err := parseTemplate(source, "concurrency key", MaxLimitKey)
	if err == nil && t.UsesRunID() {
		return Template{}, templateError("a concurrency key cannot be the id of a run: no two runs would share it")
	}
	return t, err
}

// MaxLimitKey bounds a rendered concurrency key, in bytes.
const MaxLimitKey = 200

// ParseTenant parses the template of a tenant, or "none".
func ParseTenant(source string) (Template, error) {
	if source == "none" {
		return Template{None: true}, nil
	}
	t, err := parseTemplate(source, "tenant", job.MaxTenant)
	if err == nil && t.UsesRunID() {
		return Template{}, templateError("a tenant cannot be the id of a run: every run would be a tenant of its own")
	}
	return t, err
}

func templateError(format string, args ...any) error {
	return &abi.Error{Code: CodeTemplate, Message: fmt.Sprintf(format, args...),
		Fix: `a template is text with {path.to.field} of the input or {run.id}; {{ and }} are braces`}
}

func parseTemplate(source, what string, most int) (Template, error) {
	p := &program{source: source, what: what, most: most}
	if source == "" {
		return Template{}, templateError("it is empty")
	}
	if !utf8.ValidString(source) || strings.ContainsRune(source, 0) {
		return Template{}, templateError("it holds a NUL character or is not UTF-8")
	}
	var literal strings.Builder
	size := 0 // of the literals
	flush := func() {
		if literal.Len() > 0 {
			size += literal.Len()
			p.parts = append(p.parts, part{literal: literal.String(), field: literalPart})
			literal.Reset()
		}
	}
	for i := 0; i < len(source); {
		switch c := source[i]; {
		case c == '{' && strings.HasPrefix(source[i:], "{{"), c == '}' && strings.HasPrefix(source[i:], "}}"):
			literal.WriteByte(c)
			i += 2
		case c == '}':
			return Template{}, templateError("it has a } without a { before it, at character %d", utf8.RuneCountInString(source[:i])+1)
		case c == '{':
			end := strings.IndexAny(source[i+1:], "{}")
			if end < 0 || source[i+1+end] != '}' {
				return Template{}, templateError("it has a { without a } after it, at character %d", utf8.RuneCountInString(source[:i])+1)
			}
			flush()
			field, err := p.field(source[i+1 : i+1+end])
			if err != nil {
				return Template{}, err
			}
			p.parts = append(p.parts, part{field: field})
			i += end + 2
		default:
			literal.WriteByte(c)
			i++
		}
	}
	flush()
	if size > most {
		return Template{}, templateError("its text alone is %d bytes; a rendered %s has at most %d", size, what, most)
	}
	return Template{p: p}, nil
}

// field adds the field between two braces and returns its number.
func (p *program) field(path string) (int, error) {
	if path == "run.id" {
		p.runID = true
		return runIDField, nil
	}
	segments := strings.Split(path, ".")
	if segments[0] == "run" && len(segments) > 1 {
		return 0, templateError("{%s} is not known of a run; only {run.id} is", clip(path))
	}
	if len(segments) > maxTemplateDepth {
		return 0, templateError("{%s} is nested more than %d deep", clip(path), maxTemplateDepth)
	}
	for _, s := range segments {
		if s == "" {
			return 0, templateError("{%s} names no field", clip(path))
		}
		for _, r := range s {
			if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-$@", r) {
				return 0, templateError("{%s} holds %q; a field's name has letters, digits, _ - $ and @", clip(path), r)
			}
		}
	}
	for i, known := range p.paths {
		if strings.Join(known, ".") == path {
			return i, nil
		}
	}
	if len(p.paths) == maxTemplateFields {
		return 0, templateError("it names more than %d fields", maxTemplateFields)
	}
	p.paths = append(p.paths, segments)
	return len(p.paths) - 1, nil
}

// String is the template as it was written.
func (t Template) String() string {
	switch {
	case t.None:
		return "none"
	case t.p == nil:
		return ""
	}
	return t.p.source
}

// UsesRunID reports whether {run.id} is in it: such a key never deduplicates.
func (t Template) UsesRunID() bool { return t.p != nil && t.p.runID }

// Constant reports whether it renders the same text for every run: such a key
// lets one run of its job and tenant live at a time.
func (t Template) Constant() bool { return t.p == nil || !t.p.runID && len(t.p.paths) == 0 }

// Fields are the fields of the input it names, dotted.
func (t Template) Fields() []string {
	if t.p == nil {
		return nil
	}
	fields := make([]string, len(t.p.paths))
	for i, p := range t.p.paths {
		fields[i] = strings.Join(p, ".")
	}
	return fields
}

// Render fills the template in. input must be valid JSON; of other bytes it
// makes an error or a text, without a promise which. A number is written as it
// stands in the input, a string without its escapes.
//
// Errors, all X_JOB_KEY_INVALID and naming the field: it is missing, null, an
// object, a list or an empty string, stands in the input twice (two readers
// would see two different runs), or holds what no database text can (NUL, half
// a surrogate pair); or the whole is longer than job.MaxKey or job.MaxTenant.
func (t Template) Render(input []byte, runID string) (string, error) {
	p := t.p
	if p == nil {
		return "", nil
	}
	var found [maxTemplateFields]found
	if len(p.paths) > 0 {
		s := scanner{in: input, paths: p.paths, found: &found}
		if err := s.scan(); err != nil {
			return "", p.invalid("the input is not valid JSON", "send the input as one JSON object")
		}
	}
	var stack [256]byte
	out := stack[:0]
	for _, part := range p.parts {
		switch part.field {
		case literalPart:
			out = append(out, part.literal...)
		case runIDField:
			out = append(out, runID...)
		default:
			var problem string
			if out, problem = found[part.field].append(out, input); problem != "" {
				name := strings.Join(p.paths[part.field], ".")
				return "", p.invalid("field "+name+" "+problem, "send "+name+" as a text, a number, true or false, or change the template")
			}
		}
		if len(out) > p.most {
			return "", p.invalid(fmt.Sprintf("it is longer than %d bytes", p.most), "build it from shorter fields")
		}
	}
	return string(out), nil
}

func (p *program) invalid(problem, fix string) error {
	return &abi.Error{Code: job.CodeKeyInvalid, Message: fmt.Sprintf("the %s %q cannot be made: %s", p.what, p.source, problem), Fix: fix}
}

// append writes the field's text to out. The problem is "" or what is wrong.
func (f *found) append(out, input []byte) (_ []byte, problem string) {
	switch f.state {
	case absent:
		return out, "is missing"
	case repeated:
		return out, "stands in the input twice"
	}
	value := input[f.start:f.end]
	switch value[0] {
	case '{':
		return out, "is an object"
	case '[':
		return out, "is a list"
	case 'n':
		return out, "is null"
	case '"':
		if len(value) == 2 {
			return out, "is an empty text"
		}
		value = value[1 : len(value)-1]
		if !utf8.Valid(value) {
			return out, "is not UTF-8"
		}
		if bytes.IndexByte(value, '\\') < 0 {
			return append(out, value...), ""
		}
		return unescape(out, value)
	}
	return append(out, value...), ""
}
