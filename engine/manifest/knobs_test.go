package manifest

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi/abitest"
)

// tables are all tables of a manifest with what each must have beside a key that is
// tried; %s is where that stands.
var tables = []struct {
	name, text string
	required   []string
}{
	{"runner", "[runner]\n%s", nil},
	{"queues.q", "[queues.q]\n%s", nil},
	{"queues.q.rate", "[queues.q.rate]\n%s", []string{`limit = 1`, `per = "1s"`}},
	{"modules.m", "[modules.m]\n%s", []string{`path = "m.wasm"`}},
	{"modules.m.allow", "[modules.m]\npath = \"m.wasm\"\n[modules.m.allow]\n%s", nil},
	{"jobs.j", "[modules.m]\npath = \"m.wasm\"\n[jobs.j]\n%s", []string{`module = "m"`, `tenant = "none"`, `key = "{run.id}"`}},
	{"jobs.j.retry", "[modules.m]\npath = \"m.wasm\"\n[jobs.j]\nmodule = \"m\"\ntenant = \"none\"\nkey = \"{run.id}\"\n[jobs.j.retry]\n%s", nil},
	{"jobs.j.rate", "[modules.m]\npath = \"m.wasm\"\n[jobs.j]\nmodule = \"m\"\ntenant = \"none\"\nkey = \"{run.id}\"\n[jobs.j.rate]\n%s", []string{`limit = 1`, `per = "1s"`}},
	{"jobs.j.concurrency", "[modules.m]\npath = \"m.wasm\"\n[jobs.j]\nmodule = \"m\"\ntenant = \"none\"\nkey = \"{run.id}\"\n[jobs.j.concurrency]\n%s", []string{`key = "{run.id}"`}},
	{"jobs.j.steps.s", "[modules.m]\npath = \"m.wasm\"\n[jobs.j]\nmodule = \"m\"\ntenant = \"none\"\nkey = \"{run.id}\"\n[jobs.j.steps.s]\n%s", nil},
	{"jobs.j.steps.s.retry", "[modules.m]\npath = \"m.wasm\"\n[jobs.j]\nmodule = \"m\"\ntenant = \"none\"\nkey = \"{run.id}\"\n[jobs.j.steps.s.retry]\n%s", nil},
	{"schedules.s", "[modules.m]\npath = \"m.wasm\"\n[jobs.j]\nmodule = \"m\"\ntenant = \"none\"\nkey = \"{run.id}\"\n[schedules.s]\n%s",
		[]string{`cron = "0 0 * * *"`, `tz = "UTC"`, `enqueue = [{ job = "j" }]`}},
}

// literals are values in TOML, of every type and of none.
func literals() []string {
	out := []string{
		"true", "1.5", "nan", "-nan", "inf", "-inf", "1e999", "-0.0", "9223372036854775808", "0x7fffffffffffffff", "0o777", "1_0", "1979-05-27T07:32:00Z", "0000-01-01",
		"9999-12-31T23:59:60Z", "[]", "{}", "[1, \"a\", {}]", `[""]`, `{ a = { b = 1 } }`, strings.Repeat("[", 2_000) + strings.Repeat("]", 2_000),
		"[" + strings.Repeat(`"x",`, 20_000) + "]", `""`, "'''a\nb'''", "", "@", "0 * * * *",
	}
	for _, n := range abitest.HostileNumbers() {
		out = append(out, strconv.FormatInt(n, 10))
	}
	for _, d := range abitest.HostileDurations() {
		out = append(out, strconv.Quote(d.String()))
	}
	for _, s := range []string{"290y", "10y", "1ns", "3651d", "-1s", "1d1d", "NaN", "1e3s", "1TiB", "-1MiB", "0B", "17EiB", "0 0 30 2 *", "* * * * * *", "@every 1s", "60 * * * *", "0 0 1-400 * *", "UTC", "+02:00", "Local", "../UTC", "{a.b.c}", "{{", "{run.id", "none", "dedupe", "sqlite:/dev/null", "postgres://u:hunter2@h/d?sslmode=x"} {
		out = append(out, strconv.Quote(s))
	}
	texts := abitest.HostileTexts()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if len(texts[name]) < 1<<20 || name == "10 MB" {
			out = append(out, quoted(texts[name]))
		}
	}
	return out
}

// quoted writes a TOML string whose bytes are as they are where TOML has no escape.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

// Whatever a key is set to, the manifest is refused with a place, a code and what to
// do, in words, or has a value that means something. (D15, D16)
func TestWhateverAKeyIsSetToIsRefusedOrMeansSomething(t *testing.T) {
	values := literals()
	known := regexp.MustCompile(`it may hold (.*)`)
	tried, taken := 0, 0
	for _, table := range tables {
		at := "knobs/jobs.toml"
		_, report := Parse(at, fmt.Appendf(nil, table.text, strings.Join(append(slices.Clone(table.required), "zzz = 1"), "\n")))
		if report == nil {
			t.Fatalf("[%s] takes any key", table.name)
		}
		var keys []string
		for _, p := range report.Problems {
			if m := known.FindStringSubmatch(p.Fix); m != nil && strings.Contains(p.Message, "zzz") {
				keys = strings.FieldsFunc(strings.ReplaceAll(m[1], " or ", " "), func(r rune) bool { return r == ',' || r == ' ' })
			}
		}
		if len(keys) == 0 {
			t.Fatalf("[%s]: no keys are named in\n%s", table.name, report.Text())
		}
		for _, key := range keys {
			lines := slices.DeleteFunc(slices.Clone(table.required), func(l string) bool { return strings.HasPrefix(l, key+" =") })
			for _, v := range values {
				tried++
				m, report := Parse(at, fmt.Appendf(nil, table.text, strings.Join(append(slices.Clone(lines), key+" = "+v), "\n")))
				what := fmt.Sprintf("[%s] %s = %.60s", table.name, key, v)
				if (m == nil) == (report == nil) {
					t.Errorf("%s: %v, %v", what, m, report)
				}
				if report == nil {
					taken++
					if flaw := senseless(reflect.ValueOf(m), ""); flaw != "" {
						t.Errorf("%s is taken: %s", what, flaw)
					}
					continue
				}
				if text := report.Text(); len(text) > 64<<10 {
					t.Errorf("%s: the report has %d bytes", what, len(text))
				}
				for _, p := range report.Problems {
					said := p.Message + p.Fix + p.Key
					switch {
					case !strings.HasPrefix(p.Code, "X_") || p.Line == 0 || p.Message == "":
						t.Errorf("%s: a problem without code, place or words: %+v", what, p)
					case len(said) > 4<<10:
						t.Errorf("%s: a problem of %d bytes", what, len(said))
					case !utf8.ValidString(said) || strings.ContainsFunc(said, func(r rune) bool { return r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }):
						t.Errorf("%s: it says %.200q", what, said)
					case key == "database" && strings.Contains(said, "hunter2"):
						t.Errorf("%s: it repeats a password: %s", what, said)
					}
				}
			}
		}
	}
	if tried < 3000 || taken < 100 {
		t.Errorf("%d values were tried and %d taken", tried, taken)
	}
}

// mayBeNegative are the numbers for which less than nothing says something.
var mayBeNegative = map[string]bool{"Priority": true}

// senseless finds a number that cannot have been meant: a length of time or a count
// below nothing.
func senseless(v reflect.Value, name string) string {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return senseless(v.Elem(), name)
		}
	case reflect.Struct:
		if v.Type().PkgPath() == "time" {
			return ""
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				if flaw := senseless(v.Field(i), f.Name); flaw != "" {
					return flaw
				}
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if flaw := senseless(it.Value(), name); flaw != "" {
				return flaw
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if flaw := senseless(v.Index(i), name); flaw != "" {
				return flaw
			}
		}
	case reflect.Int, reflect.Int64, reflect.Int32:
		if v.Int() < 0 && !mayBeNegative[name] {
			return fmt.Sprintf("%s is %d", name, v.Int())
		}
		if v.Type() == reflect.TypeFor[time.Duration]() && time.Duration(v.Int()) > 200*365*24*time.Hour {
			return fmt.Sprintf("%s is %s", name, time.Duration(v.Int()))
		}
	}
	return ""
}
