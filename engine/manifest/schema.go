package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// Schema is a compiled JSON Schema (draft 2020-12). A nil *Schema accepts
// everything. It is safe for concurrent use.
//
// "format" is an annotation, as the draft has it: it refuses nothing.
type Schema struct {
	path     string // as the manifest has it
	compiled *jsonschema.Schema
}

// Bounds of schemas. A reference may lead to another file of the manifest's
// folder, never out of it and never to the network: what is valid input must
// not depend on what a server answers today.
const (
	maxSchemaBytes = 1 << 20
	maxSchemaFiles = 64
	draft2020      = "https://json-schema.org/draft/2020-12/schema"
)

// CompileSchema compiles a schema that stands alone, as a module's description
// carries one. name is what messages call it.
func CompileSchema(name string, doc []byte) (*Schema, error) {
	l := &schemaLoader{}
	v, err := l.decode(name, doc)
	if err != nil {
		return nil, err
	}
	return l.compile(name, "runner:///schema.json", v)
}

// loadSchema compiles the schema in a file of root. files are those it read,
// or tried to.
func loadSchema(root *os.Root, name string) (s *Schema, files []string, err error) {
	l := &schemaLoader{root: root}
	at := fileURL(name)
	doc, err := l.Load(at)
	if err == nil {
		s, err = l.compile(name, at, doc)
	}
	return s, l.files, err
}

func fileURL(name string) string {
	return (&url.URL{Scheme: "file", Path: "/" + path.Clean(name)}).String()
}

// schemaLoader reads the files that schemas refer to. Its root is nil when
// there are none.
type schemaLoader struct {
	root  *os.Root
	files []string
}

func (l *schemaLoader) compile(name, at string, doc any) (*Schema, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(l)
	if err := c.AddResource(at, doc); err != nil {
		return nil, schemaError("%s: %s", name, plainSchemaError(err))
	}
	compiled, err := c.Compile(at)
	if err != nil {
		return nil, schemaError("%s: %s", name, plainSchemaError(err))
	}
	return &Schema{path: name, compiled: compiled}, nil
}

// Load implements jsonschema.URLLoader.
func (l *schemaLoader) Load(at string) (any, error) {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "file" || u.Host != "" || l.root == nil {
		return nil, schemaError("it refers to %s, which is not a file of the manifest's folder", clip(at))
	}
	name := strings.TrimPrefix(u.Path, "/")
	if l.files = append(l.files, name); len(l.files) > maxSchemaFiles {
		return nil, schemaError("it refers to more than %d files", maxSchemaFiles)
	}
	data, err := readRegular(l.root.Stat, l.root.Open, name, maxSchemaBytes)
	if err != nil {
		return nil, schemaError("%s %s", clip(name), err)
	}
	return l.decode(name, data)
}

func (l *schemaLoader) decode(name string, data []byte) (any, error) {
	if err := checkBounds(data); err != nil {
		return nil, schemaError("%s %s", clip(name), err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, schemaError("%s is not JSON: %s", clip(name), err)
	}
	switch doc := doc.(type) {
	case bool:
	case map[string]any:
		if draft, ok := doc["$schema"]; ok && strings.TrimSuffix(fmt.Sprint(draft), "#") != draft2020 {
			return nil, schemaError("%s declares $schema %s; only draft 2020-12 is known", clip(name), quote(fmt.Sprint(draft)))
		}
	default:
		return nil, schemaError("%s is not a JSON Schema: it is neither an object nor true or false", clip(name))
	}
	return doc, nil
}

func schemaError(format string, args ...any) error {
	return &abi.Error{Code: CodeSchema, Message: fmt.Sprintf(format, args...)}
}

// plainSchemaError is the innermost sentence of a compiler's error that a
// person can act on.
func plainSchemaError(err error) string {
	var ours *abi.Error
	if errors.As(err, &ours) {
		return ours.Message
	}
	var load *jsonschema.LoadURLError
	if errors.As(err, &load) {
		if errors.As(load.Err, &ours) {
			return ours.Message
		}
		return load.Error()
	}
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		var v *jsonschema.ValidationError
		if errors.As(invalid.Err, &v) {
			return strings.Join(violations(v), "; ")
		}
	}
	return strings.TrimPrefix(clipLong(err.Error()), "jsonschema: ")
}

func clipLong(s string) string {
	if len(s) > 300 {
		return strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}

// Path is the schema's file as the manifest has it.
func (s *Schema) Path() string {
	if s == nil {
		return ""
	}
	return s.path
}

// Validate checks JSON text against the schema. A nil schema accepts any bytes
// without looking at them. Numbers are compared as they are written, beyond
// 2^53 too.
//
// The error is an *abi.Error with X_JOB_INPUT_INVALID whose message lists the
// first violations in words, each with its JSON Pointer. It repeats names of
// properties but no value of the input, which may be a secret.
func (s *Schema) Validate(input []byte) error {
	if s == nil {
		return nil
	}
	if err := checkBounds(input); err != nil {
		return s.invalid("it " + err.Error())
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(input))
	if err != nil {
		return s.invalid("it is not JSON: " + err.Error())
	}
	err = s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return s.invalid(clipLong(err.Error()))
	}
	return s.invalid(strings.Join(violations(ve), "; "))
}

func (s *Schema) invalid(problem string) error {
	return &abi.Error{
		Code:    job.CodeInputInvalid,
		Message: "the input does not fit " + s.path + ": " + problem,
		Fix:     "change the input, or the schema if it is too narrow",
	}
}

// Bounds of JSON that goes to the validator. It compares numbers as fractions
// of big integers, for which 1e999999 is a number of 400 KB, and it fails
// outright beyond that: an input full of such numbers would cost minutes.
const (
	maxNumberBytes    = 1000
	maxNumberExponent = 1000
)

// checkBounds refuses what is nested too deep and numbers too big to compare.
// Whether it is JSON is for the decoder to say.
func checkBounds(in []byte) error {
	depth := 0
	for i := 0; i < len(in); i++ {
		switch c := in[i]; {
		case c == '"':
			s := scanner{in: in, at: i}
			if s.text() != nil {
				return nil // not JSON
			}
			i = s.at - 1
		case c == '{' || c == '[':
			if depth++; depth > abi.MaxJSONDepth {
				return fmt.Errorf("is nested more than %d deep", abi.MaxJSONDepth)
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || c >= '0' && c <= '9':
			start := i
			exponent, inExponent := 0, false
			for i++; i < len(in) && scalarByte(in[i]); i++ {
				switch d := in[i]; {
				case d == 'e' || d == 'E':
					inExponent = true
				case inExponent && d >= '0' && d <= '9' && exponent <= maxNumberExponent:
					exponent = exponent*10 + int(d-'0')
				}
			}
			if i-start > maxNumberBytes || exponent > maxNumberExponent {
				return fmt.Errorf("holds a number of more than %d digits", maxNumberBytes)
			}
			i--
		}
	}
	return nil
}
