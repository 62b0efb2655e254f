package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

func mustKey(t testing.TB, source string) Template {
	t.Helper()
	tpl, err := ParseKey(source)
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

const runID = "0197f3a1-0000-7000-8000-000000000001"

func TestRender(t *testing.T) {
	for _, c := range []struct{ name, source, input, want string }{
		{"constant", "nightly", `{}`, "nightly"},
		{"field", "onboard:{orgId}", `{"orgId":"acme"}`, "onboard:acme"},
		{"run id", "{run.id}", `not even JSON`, runID},
		{"nested", "{user.address.city}", `{"user":{"address":{"street":"x","city":"Cali"}}}`, "Cali"},
		{"twice", "{a}-{a}", `{"a":"x"}`, "x-x"},
		{"several", "{b}/{a.c}/{run.id}", `{"a":{"c":1},"b":true}`, "true/1/" + runID},
		{"braces", "{{{a}}}", `{"a":"x"}`, "{x}"},
		{"only braces", "{{}}", `{}`, "{}"},
		{"escapes", "{a}", `{"a":"q\"b\\s\/n\nu\u00e9p\ud83d\ude00"}`, "q\"b\\s/n\nué" + "p😀"},
		{"escaped key", "{orgId}", `{"org\u0049d":"x"}`, "x"},
		{"number as written", "{n}", `{"n":12345678901234567890.10e+2}`, "12345678901234567890.10e+2"},
		{"negative", "{n}", `{"n":-0}`, "-0"},
		{"false", "{b}", `{"b":false}`, "false"},
		{"spaces", "{a.b}", " {\t\"x\" : [ { \"a\" : 1 } , \"}\" ] ,\r\n \"a\" : { \"b\" : \"v\" } } ", "v"},
		{"quotes inside", "{a}", `{"x":"\\","y":"\"}","a":"v"}`, "v"},
		{"same name elsewhere", "{id}", `{"child":{"id":"no"},"list":[{"id":"no"}],"id":"yes"}`, "yes"},
		{"a prefix of another path", "{a}:{ab.c}", `{"ab":{"c":"2"},"a":"1"}`, "1:2"},
		{"Unicode names", "{straße.größe}", `{"straße":{"größe":4}}`, "4"},
		{"dollar, at and dash", "{$type}{@id}{a-b}", `{"$type":"t","@id":"i","a-b":"d"}`, "tid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := mustKey(t, c.source).Render([]byte(c.input), runID)
			if err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestRenderRefusesWhatIsNoKey(t *testing.T) {
	for _, c := range []struct{ name, source, input, problem string }{
		{"missing", "{orgId}", `{"orgid":"x"}`, "field orgId is missing"},
		{"null", "{a.b}", `{"a":{"b":null}}`, "field a.b is null"},
		{"object", "{a}", `{"a":{}}`, "field a is an object"},
		{"list", "{a}", `{"a":[]}`, "field a is a list"},
		{"empty", "{a}", `{"a":""}`, "field a is an empty text"},
		{"through a text", "{a.b}", `{"a":"x"}`, "field a.b is missing"},
		{"through a list", "{a.b}", `{"a":[{"b":1}]}`, "field a.b is missing"},
		{"no object", "{a}", `[{"a":1}]`, "field a is missing"},
		{"twice", "{a}", `{"a":"1","a":"2"}`, "field a stands in the input twice"},
		{"twice, escaped", "{a}", `{"a":"1","\u0061":"1"}`, "field a stands in the input twice"},
		{"parent twice", "{a.b}", `{"a":{"b":1},"a":null}`, "field a.b stands in the input twice"},
		{"NUL", "{a}", `{"a":"x\u0000"}`, "field a holds a NUL character"},
		{"half a pair", "{a}", `{"a":"\ud800"}`, "field a holds half a surrogate pair"},
		{"the other half", "{a}", `{"a":"\udc00\ud800"}`, "field a holds half a surrogate pair"},
		{"not UTF-8", "{a}", "{\"a\":\"\xff\"}", "field a is not UTF-8"},
		{"cut off", "{a}", `{"a":"x"`, "the input is not valid JSON"},
		{"too long", "{a}", `{"a":"` + strings.Repeat("x", job.MaxKey+1) + `"}`, "it is longer than 512 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := mustKey(t, c.source).Render([]byte(c.input), runID)
			if abi.CodeOf(err) != job.CodeKeyInvalid {
				t.Fatalf("got %q, %v", got, err)
			}
			want := fmt.Sprintf("X_JOB_KEY_INVALID: the idempotency key %q cannot be made: %s", c.source, c.problem)
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		})
	}
}

func TestTenantsAreTemplatesOrNone(t *testing.T) {
	none, err := ParseTenant("none")
	if err != nil || !none.None || none.String() != "none" {
		t.Errorf("none is %+v, %v", none, err)
	}
	if got, err := none.Render([]byte(`{}`), runID); got != "" || err != nil {
		t.Errorf("none renders %q, %v", got, err)
	}
	org, err := ParseTenant("org-{orgId}")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := org.Render([]byte(`{"orgId":"acme"}`), runID); got != "org-acme" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	long := `{"orgId":"` + strings.Repeat("x", job.MaxTenant-3) + `"}`
	if got, err := org.Render([]byte(long), runID); abi.CodeOf(err) != job.CodeKeyInvalid {
		t.Errorf("a tenant of more than %d bytes: %q, %v", job.MaxTenant, got, err)
	}
	if _, err := ParseTenant("{run.id}"); abi.CodeOf(err) != CodeTemplate {
		t.Errorf("a tenant for each run: %v", err)
	}
}

func TestATemplateSaysWhatItUses(t *testing.T) {
	for _, c := range []struct {
		source          string
		runID, constant bool
		fields          []string
	}{
		{"nightly", false, true, []string{}},
		{"{run.id}", true, false, []string{}},
		{"{a.b}:{c}:{a.b}", false, false, []string{"a.b", "c"}},
	} {
		tpl := mustKey(t, c.source)
		if tpl.UsesRunID() != c.runID || tpl.Constant() != c.constant || tpl.String() != c.source {
			t.Errorf("%s: run id %v, constant %v, text %s", c.source, tpl.UsesRunID(), tpl.Constant(), tpl)
		}
		if d := cmp.Diff(c.fields, tpl.Fields()); d != "" {
			t.Errorf("%s: %s", c.source, d)
		}
	}
	if z := (Template{}); z.String() != "" || z.UsesRunID() || !z.Constant() || z.Fields() != nil {
		t.Error("the zero template is not empty")
	}
}

// reference renders a template of one path with encoding/json; false is a
// refusal. It walks tokens, because a map would hide a key that stands twice.
func reference(input []byte, path []string) (string, bool) {
	var v json.RawMessage = input
	for _, segment := range path {
		var value json.RawMessage
		n := 0
		dec := json.NewDecoder(bytes.NewReader(v))
		if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
			return "", false
		}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return "", false
			}
			var val json.RawMessage
			if err := dec.Decode(&val); err != nil {
				return "", false
			}
			if key == segment {
				value = val
				n++
			}
		}
		if n != 1 {
			return "", false
		}
		v = value
	}
	switch {
	case v[0] == '"':
		var s string
		if err := json.Unmarshal(v, &s); err != nil || s == "" || strings.ContainsRune(s, 0) {
			return "", false
		}
		// A replacement character that the text does not hold stands for what
		// is no character.
		if strings.Count(s, "\uFFFD") != bytes.Count(v, []byte("\uFFFD"))+strings.Count(strings.ToLower(string(v)), `\ufffd`) {
			return "", false
		}
		return s, true
	case bytes.IndexByte([]byte("{[n"), v[0]) >= 0:
		return "", false
	}
	return string(v), true
}

// For every valid input the scanner finds what encoding/json finds; for any
// other it returns.
func FuzzRenderAgreesWithEncodingJSON(f *testing.F) {
	for _, in := range []string{
		`{"a":"x"}`, `{"a":{"b":1}}`, `{"a":{"b":null},"a":3}`, `{"\u0061":{"\u0062":"\ud83d\ude00"}}`, `{"a":{"b":"\ud800"}}`, `[{"a":1}]`,
		`{"x":[{"a":{"b":2}}],"a":{"b":"\"\\"}}`, `{"a":{"b":1e5,"b":2}}`, ` {"a" : {"b" : true } } `, `{"a":{"b":"\ufffd\uFFFD` + "\uFFFD" + `"}}`, `{"":{"":1},"a":{"b":[]}}`, "{\"a\":{\"b\":\"\xff\"}}",
		`{"a":{"b":"\udead\ud800\udc00"}}`, `{"a":1`, `"`, `{"a\\":"b\\\\\"","a":{"b":-0.0}}`, `{"a"}`, `{`, `{"a":{"b":"\u00`,
	} {
		f.Add([]byte(in))
	}
	shallow, deep, both := mustKey(f, "{a}"), mustKey(f, "{a.b}"), mustKey(f, "{a.b}|{a.c}|{b}")
	f.Fuzz(func(t *testing.T, input []byte) {
		before := bytes.Clone(input)
		defer func() {
			if !bytes.Equal(before, input) {
				t.Error("the input was written to")
			}
		}()
		_, _ = both.Render(input, runID)
		for _, c := range []struct {
			tpl  Template
			path []string
		}{{shallow, []string{"a"}}, {deep, []string{"a", "b"}}} {
			got, err := c.tpl.Render(input, runID)
			if err != nil && (abi.CodeOf(err) != job.CodeKeyInvalid || got != "") {
				t.Fatalf("%q, %v", got, err)
			}
			if err == nil && (got == "" || !utf8.ValidString(got) && json.Valid(input)) {
				t.Fatalf("%q renders %q", input, got)
			}
			if !json.Valid(input) || len(input) > job.MaxKey {
				continue
			}
			want, ok := reference(input, c.path)
			if ok != (err == nil) || got != want {
				t.Fatalf("%s of %q is %q, %v; encoding/json finds %q, %v", c.tpl, input, got, err, want, ok)
			}
		}
	})
}

// orderInput is an input of about n bytes with the fields of the benchmarks at
// its end.
func orderInput(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"items":[`)
	for i := 0; b.Len() < n-80; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"sku":"A-%04d","quantity":%d,"price":{"amount":19.90,"currency":"EUR"},"note":"gift \"wrap\""}`, i, i%7)
	}
	b.WriteString(`],"customer":{"id":4711,"name":"Ada"},"orgId":"acme"}`)
	return []byte(b.String())
}

func BenchmarkRender(b *testing.B) {
	tpl := mustKey(b, "order:{orgId}:{customer.id}")
	for _, n := range []int{150, 1500, 64 << 10} {
		input := orderInput(n)
		b.Run(fmt.Sprintf("%dB", len(input)), func(b *testing.B) {
			b.SetBytes(int64(len(input)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tpl.Render(input, runID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRenderThroughMaps is what Render would cost with encoding/json.
func BenchmarkRenderThroughMaps(b *testing.B) {
	input := orderInput(1500)
	b.SetBytes(int64(len(input)))
	b.ReportAllocs()
	for b.Loop() {
		dec := json.NewDecoder(bytes.NewReader(input))
		dec.UseNumber()
		var m map[string]any
		if err := dec.Decode(&m); err != nil {
			b.Fatal(err)
		}
		_, _ = fmt.Fprint(io.Discard, m["orgId"], m["customer"].(map[string]any)["id"])
	}
}
