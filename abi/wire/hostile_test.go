package wire_test

import (
	"errors"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/wire"
)

// told fails unless an error of a decoder is a violation or a refusal that says a
// bounded line and what to do.
func told(t *testing.T, b []byte, err error) {
	t.Helper()
	var violation *abi.Violation
	var refused *abi.Refusal
	switch {
	case errors.As(err, &violation):
	case errors.As(err, &refused) && refused.Failure.Fix != "":
	default:
		t.Fatalf("%q is refused with %v", b, err)
	}
	if m := err.Error(); len(m) > 2<<10 || !utf8.ValidString(m) {
		t.Fatalf("%q is refused with %d bytes, %.200q", b, len(m), m)
	}
}

func seedJSON(f *testing.F, more ...string) {
	for _, s := range more {
		f.Add([]byte(s))
	}
	for _, s := range abitest.HostileJSON() {
		if len(s) < 4<<10 {
			f.Add([]byte(s))
		}
	}
}

// What a module says of itself is taken if it reads the same again.
func FuzzDecodeDescription(f *testing.F) {
	seedJSON(f, `{"abi":1,"sdk":"go","handlers":[{"name":"a","schema":{"type":"object"}},{"name":"b","schema":true}]}`,
		`{"abi":1,"handlers":[{"name":"a"},{"name":"a"}]}`, `{"abi":2,"handlers":[{"name":"a"}]}`, `{"abi":1,"handlers":[{"name":"a\nb"}]}`, `{"abi":1,"handlers":[{"name":"a","schema":null}],"more":[]}`,
		`{"ABI":1,"handlers":[{"name":"a","schema":1}]}`)
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := wire.DecodeDescription(b)
		if err != nil {
			told(t, b, err)
			return
		}
		again, err := wire.DecodeDescription(wire.AppendDescription(nil, d))
		if err != nil || !reflect.DeepEqual(again, d) {
			t.Fatalf("%q is %+v, and that %+v, %v", b, d, again, err)
		}
	})
}

// Children that are asked for are within every bound, or refused.
func FuzzDecodeInvoke(f *testing.F) {
	seedJSON(f, `{"job":"a","timeout_ms":1,"abandon":true}`, `[{"job":"a","input":[1]},{"job":"b","delay_ms":-1}]`, `[]`, `{"job":"a","timeout_ms":-1}`, `{"job":"a","timeout_ms":9223372036854775807}`,
		`{"job":"a","run_at":"9999-12-31T23:59:59Z","delay_ms":1}`, `{"job":"a","priority":1e3}`, `{"job":"a","run_at":"0000-01-01T00:00:00Z"}`)
	f.Fuzz(func(t *testing.T, b []byte) {
		runs, err := wire.DecodeInvoke(b)
		if err != nil {
			told(t, b, err)
			return
		}
		if len(runs) == 0 || len(runs) > abi.MaxEnqueue {
			t.Fatalf("%q makes %d runs", b, len(runs))
		}
		for _, r := range runs {
			if _, err := wire.Name(abi.FuncInvoke, []byte(r.Job)); err != nil || wire.CheckJSON(r.Input, abi.MaxInput) != nil || r.TimeoutMS < 0 || r.DelayMS < 0 {
				t.Fatalf("%q makes %+v", b, r)
			}
		}
	})
}

// token is one of HTTP.
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// A request that is taken smuggles nothing: no second header in a value, no
// credentials, no other scheme.
func FuzzDecodeHTTPRequest(f *testing.F) {
	seedJSON(f, `{"url":"https://example.org/a","headers":{"A":"b"},"body":"x","timeout_ms":1}`, `{"url":"https://u:p@example.org/"}`, `{"url":"file:///etc/passwd"}`, `{"url":"http://example.org","headers":{"A\r\nB":"c"}}`,
		`{"url":"http://example.org","headers":{"A":"b\r\nC: d"}}`, `{"url":"http://example.org","body64":"AA=="}`, `{"url":"http://example.org","body":"a","body64":"AA=="}`, `{"url":"http://exa mple.org"}`, `{"url":"//example.org"}`, `{"method":"G T","url":"http://example.org"}`)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := wire.DecodeHTTPRequest(b)
		if err != nil {
			told(t, b, err)
			return
		}
		u, err := url.Parse(r.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Hostname() == "" || !token.MatchString(r.Method) || strings.ContainsAny(r.URL, "\r\n\x00 ") {
			t.Fatalf("%q is %+v", b, r.HTTPRequest)
		}
		for name, value := range r.Headers {
			if !token.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
				t.Fatalf("%q has the header %q: %q", b, name, value)
			}
		}
	})
}
