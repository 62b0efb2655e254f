package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
)

func TestCheckJSONAccepts(t *testing.T) {
	for _, text := range []string{
		`null`, `true`, `false`, `""`, `0`, `-0`, `1.5e+300`, `{}`, `[]`, " \t\r\n{ } ",
		`123456789012345678901234567890.000000000000000000000001E-99999`,
		`"\u0000 \ud800 \"\\\/\b\f\n\r\t"`,
		"\"\u2028 \U0001f600 \x7f\"",
		`{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}`,
		`{"":1," ":2}`,
		`{"a":1,"\u0062":2}`,
		`{"a":1,"A":2}`,
		manyKeys(40, -1),
		strings.Repeat("[", abi.MaxJSONDepth) + strings.Repeat("]", abi.MaxJSONDepth),
	} {
		if err := CheckJSON([]byte(text), math.MaxInt); err != nil {
			t.Errorf("CheckJSON(%.60q) = %v, want nil", text, err)
		}
	}
}

func TestCheckJSONSaysWhatIsWrongAndWhere(t *testing.T) {
	for _, c := range []struct {
		text    string
		problem JSONProblem
		want    string
	}{
		{``, JSONSyntax, "unexpected end, want a value at byte 0"},
		{`  `, JSONSyntax, "unexpected end, want a value at byte 2"},
		{`nul`, JSONSyntax, "unexpected end, want null at byte 3"},
		{`nulL`, JSONSyntax, "unexpected 'L', want null at byte 3"},
		{`NaN`, JSONSyntax, "unexpected 'N', want a value at byte 0"},
		{`1 2`, JSONSyntax, "unexpected '2', want the end after the value at byte 2"},
		{`01`, JSONSyntax, "unexpected '1', want the end after the value at byte 1"},
		{`-`, JSONSyntax, "unexpected end, want a digit at byte 1"},
		{`-x`, JSONSyntax, "unexpected 'x', want a digit at byte 1"},
		{`1.`, JSONSyntax, "unexpected end, want a digit at byte 2"},
		{`1e+`, JSONSyntax, "unexpected end, want a digit at byte 3"},
		{`.5`, JSONSyntax, "unexpected '.', want a value at byte 0"},
		{`+1`, JSONSyntax, "unexpected '+', want a value at byte 0"},
		{`'a'`, JSONSyntax, "unexpected '\\'', want a value at byte 0"},
		{`"a`, JSONSyntax, "unexpected end, want '\"' at the end of a string at byte 2"},
		{"\"a\nb\"", JSONSyntax, "control character '\\n' in a string at byte 2"},
		{`"\x"`, JSONSyntax, "unexpected 'x', want an escape at byte 2"},
		{`"\`, JSONSyntax, "unexpected end, want an escape at byte 2"},
		{`"\u12g4"`, JSONSyntax, "unexpected 'g', want a hexadecimal digit at byte 5"},
		{`"\u12`, JSONSyntax, "unexpected end, want a hexadecimal digit at byte 5"},
		{`[1,]`, JSONSyntax, "unexpected ']', want a value at byte 3"},
		{`[1 2]`, JSONSyntax, "unexpected '2', want ',' or ']' at byte 3"},
		{`[1`, JSONSyntax, "unexpected end, want ',' or ']' at byte 2"},
		{`{"a":1,}`, JSONSyntax, "unexpected '}', want a key in quotes at byte 7"},
		{`{a:1}`, JSONSyntax, "unexpected 'a', want a key in quotes at byte 1"},
		{`{"a" 1}`, JSONSyntax, "unexpected '1', want ':' after the key at byte 5"},
		{`{"a":1`, JSONSyntax, "unexpected end, want ',' or '}' at byte 6"},
		{`{"a":1]`, JSONSyntax, "unexpected ']', want ',' or '}' at byte 6"},
		{"\ufeff1", JSONSyntax, "unexpected '\\ufeff', want a value at byte 0"},
		{"\"abcdefgh\xff\"", JSONEncoding, "invalid UTF-8 at byte 9"},
		{"\"\xed\xa0\x80\"", JSONEncoding, "invalid UTF-8 at byte 1"}, // a surrogate as UTF-8
		{"\"\xc0\x80\"", JSONEncoding, "invalid UTF-8 at byte 1"},     // an overlong NUL
		{"\xff", JSONEncoding, "invalid UTF-8 at byte 0"},
		{`{"b":1,"x":null,"b":2}`, JSONDuplicateKey, `duplicate key "b" at byte 16`},
		{`{"a":1,"\u0061":2}`, JSONDuplicateKey, `duplicate key "a" at byte 7`},
		{`{"\u0061":1,"a":2}`, JSONDuplicateKey, `duplicate key "a" at byte 12`},
		{`{"x":[{"k":1,"k":2}]}`, JSONDuplicateKey, `duplicate key "k" at byte 13`},
		{`{"a":{"b":1},"c":2,"a":3}`, JSONDuplicateKey, `duplicate key "a" at byte 19`},
		{manyKeys(40, 3), JSONDuplicateKey, `duplicate key "k03" at byte 321`},
		{`{"` + strings.Repeat("é", 40) + `":1,"` + strings.Repeat("é", 40) + `":1}`, JSONDuplicateKey,
			`duplicate key "` + strings.Repeat("é", 32) + `"… at byte 86`},
		{strings.Repeat("[", abi.MaxJSONDepth+1), JSONTooDeep, "nested deeper than 1000 at byte 1000"},
		{strings.Repeat(`{"a":`, abi.MaxJSONDepth+1), JSONTooDeep, "nested deeper than 1000 at byte 5000"},
	} {
		err := CheckJSON([]byte(c.text), math.MaxInt)
		var je *JSONError
		if !errors.As(err, &je) {
			t.Errorf("CheckJSON(%.40q) = %v, want a *JSONError", c.text, err)
			continue
		}
		if je.Problem != c.problem || je.Error() != c.want {
			t.Errorf("CheckJSON(%.40q) = problem %d, %q; want problem %d, %q", c.text, je.Problem, je, c.problem, c.want)
		}
	}
}

func TestCheckJSONRefusesMoreThanMaxBytesUnread(t *testing.T) {
	if err := CheckJSON([]byte(`"abc"`), 5); err != nil {
		t.Errorf("5 bytes of 5: %v", err)
	}
	var je *JSONError
	if err := CheckJSON([]byte(`nonsense`), 7); !errors.As(err, &je) || je.Problem != JSONTooLarge {
		t.Errorf("8 bytes of 7: %v, want JSONTooLarge", err)
	}
}

// manyKeys is an object of n keys "k00".. and, unless again < 0, a last one
// that repeats key number again.
func manyKeys(n, again int) string {
	var sb strings.Builder
	for i := range n {
		fmt.Fprintf(&sb, `,"k%02d":1`, i)
	}
	if again >= 0 {
		fmt.Fprintf(&sb, `,"k%02d":1`, again)
	}
	return "{" + sb.String()[1:] + "}"
}

func TestCheckJSONDoesNotAllocateForCommonInputs(t *testing.T) {
	for _, text := range []string{tiny, typical} {
		b := []byte(text)
		if n := testing.AllocsPerRun(100, func() { _ = CheckJSON(b, abi.MaxInput) }); n != 0 {
			t.Errorf("%.30s…: %v allocations, want 0", text, n)
		}
	}
}

const (
	tiny    = `{"orgId":"org_1"}`
	typical = `{"orgId":"org_8f14e45fceea","email":"someone@example.com","plan":"pro","seats":25,"trial":false,` +
		`"address":{"street":"Calle 93 # 11-26","city":"Bogotá","country":"CO","zip":null},"tags":["new","eu","self-serve"]}`
)

func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{tiny, typical, `[1,2.5e-7,"\ud83d\ude00",{"a":{},"b":[]}]`, `{"a":1,"\u0061":2}`,
		"\"\xff\"", `{"a":1}}`, manyKeys(30, 2), `{"\ud800":1,"\udfff":2}`, `{"\"":1,"\\":2,"\\":3}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := CheckJSON(b, math.MaxInt)
		var je *JSONError
		if err != nil && !errors.As(err, &je) {
			t.Fatalf("%T is no *JSONError", err)
		}
		if je != nil && (je.Offset < 0 || je.Offset > len(b)) {
			t.Fatalf("offset %d of %d bytes", je.Offset, len(b))
		}
		depth, duplicate := walk(b)
		want := json.Valid(b) && utf8.Valid(b) && depth <= abi.MaxJSONDepth && !duplicate
		if (err == nil) != want {
			t.Fatalf("CheckJSON(%q) = %v; encoding/json: valid=%v depth=%d duplicate=%v", b, err, json.Valid(b), depth, duplicate)
		}
	})
}

// walk is how deep b nests and whether an object repeats a key, as far as
// encoding/json can read it.
func walk(b []byte) (depth int, duplicate bool) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	type frame struct {
		keys map[string]bool // nil for an array
		key  bool            // the next string is a key
	}
	var stack []frame
	for {
		tok, err := dec.Token()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return depth, false
			}
			return depth, duplicate
		}
		if d, ok := tok.(json.Delim); ok && (d == '}' || d == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].keys != nil {
			top := &stack[n-1]
			if top.key {
				s := tok.(string)
				duplicate = duplicate || top.keys[s]
				top.keys[s] = true
				top.key = false
				continue
			}
			top.key = true
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, frame{map[string]bool{}, true})
		case json.Delim('['):
			stack = append(stack, frame{})
		}
		depth = max(depth, len(stack))
	}
}

func BenchmarkCheckJSON(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"tiny", tiny}, {"typical", typical}, {"100keys", manyKeys(100, -1)},
		{"64KiB string", `"` + strings.Repeat("abcdefgh", 8<<10) + `"`},
	} {
		b.Run(c.name, func(b *testing.B) {
			text := []byte(c.text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if err := CheckJSON(text, abi.MaxInput); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/encoding-json", func(b *testing.B) {
			text := []byte(c.text)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !json.Valid(text) {
					b.Fatal("invalid")
				}
			}
		})
	}
}
