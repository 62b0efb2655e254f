package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

func compile(t testing.TB, doc string) *Schema {
	t.Helper()
	s, err := CompileSchema("s.json", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestANilSchemaAcceptsEverything(t *testing.T) {
	var s *Schema
	for _, in := range []string{``, `{`, `{"a":1}`} {
		if err := s.Validate([]byte(in)); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	}
	if s.Path() != "" {
		t.Errorf("its path is %q", s.Path())
	}
}

func TestViolationsAreWordsWithTheirPlace(t *testing.T) {
	for _, c := range []struct{ schema, input, want string }{
		{`{"type":"object"}`, `[]`, "it must be an object, not an array"},
		{`{"type":["string","null"]}`, `5`, "it must be null or a string, not a number"},
		{`{"required":["b","a"]}`, `{}`, "it lacks a, b"},
		{`{"properties":{"a":{"properties":{"b":{"type":"integer"}}}}}`, `{"a":{"b":"x"}}`, "/a/b must be an integer, not a string"},
		{`{"items":{"maxLength":2}}`, `["ab","abc"]`, "/1 must be at most 2 characters long, not 3"},
		{`{"minLength":2}`, `"a"`, "it must be at least 2 characters long, not 1"},
		{`{"additionalProperties":false}`, `{"z":1,"y":2}`, "it may not hold y, z"},
		{`{"enum":["a",2,null,{}]}`, `"b"`, `it must be one of "a", 2, null, an object`},
		{`{"const":"a"}`, `"b"`, `it must be "a"`},
		{`{"pattern":"^a$"}`, `"b"`, "it must match the pattern ^a$"},
		{`{"minimum":3}`, `2`, "it must be at least 3"},
		{`{"maximum":3}`, `4`, "it must be at most 3"},
		{`{"exclusiveMinimum":0.5}`, `0.5`, "it must be more than 0.5"},
		{`{"exclusiveMaximum":3}`, `3`, "it must be less than 3"},
		{`{"multipleOf":5}`, `4`, "it must be a multiple of 5"},
		{`{"minItems":1}`, `[]`, "it must hold at least 1 items, not 0"},
		{`{"maxItems":1}`, `[1,2]`, "it must hold at most 1 items, not 2"},
		{`{"minProperties":1}`, `{}`, "it must hold at least 1 properties, not 0"},
		{`{"maxProperties":0}`, `{"a":1}`, "it must hold at most 0 properties, not 1"},
		{`{"uniqueItems":true}`, `[1,1]`, "it holds the same item at 0 and 1"},
		{`{"contains":{"const":1}}`, `[2]`, "it lacks an item that the schema asks for (contains)"},
		{`{"contains":{"const":1},"maxContains":1}`, `[1,1]`, "it holds too many items of one sort (maxContains)"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "it lacks b, which go with a"},
		{`{"propertyNames":{"maxLength":1}}`, `{"ab":1}`, "it must be at most 1 characters long, not 2"},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `5`, "it fits none of the alternatives (anyOf)"},
		{`{"oneOf":[{"type":"string"},{"type":"null"}]}`, `5`, "it fits none of the alternatives (oneOf)"},
		{`{"oneOf":[true,true]}`, `5`, "it fits more than one of the alternatives (oneOf)"},
		{`{"not":{"type":"number"}}`, `5`, "it fits what the schema excludes (not)"},
		{`{"properties":{"a":false}}`, `{"a":1}`, "/a may not be there"},
		{`{"properties":{"a/b~":{"type":"null"}}}`, `{"a/b~":1}`, "/a~1b~0 must be null, not a number"},
		{`{"allOf":[{"required":["a"]},{"required":["b"]}]}`, `{}`, "it lacks a; it lacks b"},
		{`{"$ref":"#/$defs/x","$defs":{"x":{"type":"null"}}}`, `1`, "it must be null, not a number"},
		{`{}`, `{"a":1} x`, "it is not JSON: invalid character after top-level value"},
		{`{}`, ``, "it is not JSON: EOF"},
	} {
		err := compile(t, c.schema).Validate([]byte(c.input))
		want := "X_JOB_INPUT_INVALID: the input does not fit s.json: " + c.want + " (change the input, or the schema if it is too narrow)"
		if err == nil || err.Error() != want {
			t.Errorf("%s of %s:\ngot  %v\nwant %s", c.input, c.schema, err, want)
		}
	}
}

func TestARefusalRepeatsNoValueOfTheInput(t *testing.T) {
	const secret = "hunter2"
	for _, schema := range []string{
		`{"properties":{"a":{"pattern":"^x$"}}}`, `{"properties":{"a":{"enum":["x"]}}}`, `{"properties":{"a":{"const":1}}}`,
		`{"properties":{"a":{"maxLength":1}}}`, `{"properties":{"a":{"type":"number"}}}`, `{"properties":{"a":{"not":{}}}}`,
		`{"properties":{"a":{"anyOf":[{"const":"x"}]}}}`, `{"dependentSchemas":{"a":{"required":["b"]}}}`,
	} {
		err := compile(t, schema).Validate([]byte(`{"a":"` + secret + `"}`))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

func TestARefusalIsBounded(t *testing.T) {
	s := compile(t, `{"additionalProperties":{"type":"null"}}`)
	var b strings.Builder
	b.WriteString(`{"a":null`)
	for i := range 1000 {
		fmt.Fprintf(&b, `,"%d%s":1`, i, strings.Repeat("k", 300))
	}
	b.WriteString(`}`)
	err := s.Validate([]byte(b.String()))
	if err == nil || len(err.Error()) > 2000 || !strings.Contains(err.Error(), "and 992 more") {
		t.Errorf("%d bytes: %.300s", len(fmt.Sprint(err)), err)
	}
}

func TestNumbersAreComparedAsTheyAreWritten(t *testing.T) {
	s := compile(t, `{"maximum":9007199254740993}`)
	if err := s.Validate([]byte(`9007199254740993`)); err != nil {
		t.Error(err)
	}
	if err := s.Validate([]byte(`9007199254740994`)); err == nil {
		t.Error("2^53+2 passes for 2^53+1")
	}
}

// The validator compares numbers as fractions of big integers: without a bound
// these cost minutes or crash it.
func TestNumbersThatAreTooBigToCompareAreRefused(t *testing.T) {
	s := compile(t, `{"items":{"type":"integer","minimum":0,"multipleOf":2}}`)
	for _, n := range []string{"1e1001", "1e999999999999999999999", "-1E+99999999", "1e-1001", strings.Repeat("9", 1001), "1e0000000000000000000001001"} {
		err := s.Validate([]byte(`[2,"1e9999 inside a text",` + n + `]`))
		if abi.CodeOf(err) != job.CodeInputInvalid {
			t.Errorf("%.30s: %v", n, err)
		}
	}
	if err := s.Validate([]byte(`[1e1000,"1e9999"]`)); err == nil || !strings.Contains(err.Error(), "/1") || strings.Contains(err.Error(), "/0") {
		t.Errorf("the largest allowed: %v", err)
	}
}

func TestDeepInputIsRefused(t *testing.T) {
	s := compile(t, `{"items":{"$ref":"#"}}`)
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if err := s.Validate(deep(abi.MaxJSONDepth)); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	if err := s.Validate(deep(abi.MaxJSONDepth + 1)); abi.CodeOf(err) != job.CodeInputInvalid {
		t.Errorf("beyond the bound: %v", err)
	}
}

func TestASchemaThatStandsAloneReadsNoFile(t *testing.T) {
	for _, ref := range []string{"other.json", "file:///etc/passwd", "http://example.com/s.json", "//example.com/s.json"} {
		_, err := CompileSchema("module m", fmt.Appendf(nil, `{"$ref":%q}`, ref))
		if abi.CodeOf(err) != CodeSchema || !strings.Contains(err.Error(), "not a file of the manifest's folder") {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func TestFieldsPromisedThroughReferencesAndAllOf(t *testing.T) {
	s := compile(t, `{
		"type": "object",
		"allOf": [{"$ref": "#/$defs/base"}],
		"required": ["kind", "self"],
		"properties": {"kind": {"const": "x"}, "self": {"$ref": "#"}},
		"$defs": {"base": {"type": "object", "required": ["org"], "properties": {"org": {"allOf": [{"type": "string"}, {"minLength": 1}]}}}}
	}`)
	for path, want := range map[string]bool{"org": true, "kind": true, "self.org": true, "self.self.kind": true, "self": false, "org.x": false, "base": false} {
		problem := s.fieldProblem(strings.Split(path, "."))
		if (problem == "") != want {
			t.Errorf("%s: %q", path, problem)
		}
	}
}

func FuzzValidateReturns(f *testing.F) {
	f.Add(`{"a":{"b":[1,2.5e3,"x"]},"c":null}`)
	f.Add(`{"a":1e999999999}`)
	f.Add(`[[[[`)
	f.Add(`{"n":` + strings.Repeat("9", 400) + `}`)
	s := compile(f, `{
		"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/any"},
		"properties": {"n": {"type": "integer", "multipleOf": 0.5, "maximum": 1e30}, "s": {"pattern": "^a+$"}},
		"$defs": {"any": {"anyOf": [{"type": ["number", "string", "null"]}, {"type": "array", "uniqueItems": true, "items": {"$ref": "#/$defs/any"}}, {"$ref": "#"}]}}
	}`)
	f.Fuzz(func(t *testing.T, input string) {
		err := s.Validate([]byte(input))
		if err != nil && (abi.CodeOf(err) != job.CodeInputInvalid || len(err.Error()) > 4000) {
			t.Fatalf("%v", err)
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	s := compile(b, `{
		"type": "object", "required": ["orgId", "customer", "items"],
		"properties": {
			"orgId": {"type": "string", "minLength": 1},
			"customer": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}},
			"items": {"type": "array", "items": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}, "quantity": {"type": "integer"}}}}
		}
	}`)
	for _, n := range []int{150, 1500} {
		input := orderInput(n)
		b.Run(fmt.Sprintf("%dB", len(input)), func(b *testing.B) {
			b.SetBytes(int64(len(input)))
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Validate(input); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
