package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
)

func TestDescriptionCrosses(t *testing.T) {
	want := abi.Description{ABI: 1, SDK: "go/1.0", Handlers: []abi.Handler{
		{Name: "onboard-org"}, {Name: "b", Schema: json.RawMessage(`{"type":"object"}`)}, {Name: "c", Schema: json.RawMessage("true")},
	}}
	got, err := DecodeDescription(AppendDescription(nil, want))
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got))
	}
}

func TestDescriptionMayGrow(t *testing.T) {
	d, err := DecodeDescription([]byte(`{"abi":1,"sdk":"x","handlers":[{"name":"a","color":"red","schema":null}],"more":[1]}`))
	if err != nil || d.Handlers[0].Schema != nil {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestBadDescriptionIsAViolation(t *testing.T) {
	many := strings.Repeat(`{"name":"a"},`, maxHandlers) + `{"name":"b"}`
	for js, want := range map[string]string{
		``:                                    "not strict JSON",
		`[]`:                                  "not an object",
		`{"abi":"1"}`:                         "wrong shape",
		`{}`:                                  "built for ABI 0, this host serves 1",
		`{"abi":2,"handlers":[{"name":"a"}]}`: "built for ABI 2, this host serves 1",
		`{"abi":1}`:                           "no handlers",
		`{"abi":1,"handlers":[` + many + `]}`: "1001 handlers",
		`{"abi":1,"handlers":[{"name":""}]}`:  "handler 0 is empty",
		`{"abi":1,"handlers":[{"name":"a"},{"name":"a"}]}`:     `two handlers are named "a"`,
		`{"abi":1,"handlers":[{"name":"a","schema":"{}"}]}`:    "neither an object nor a boolean",
		`{"abi":1,"handlers":[{"name":"a\u0000"}],"sdk":"go"}`: "control character",
	} {
		_, err := DecodeDescription([]byte(js))
		var v *abi.Violation
		if !errors.As(err, &v) || v.Func != abi.ExportDescribe || !strings.Contains(v.Detail, want) {
			t.Errorf("%.60s: %v, want a violation with %q", js, err, want)
		}
	}
}

func TestMetaCrosses(t *testing.T) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC)
	for _, want := range []abi.Meta{
		{RunID: "r", Job: "j", Queue: "q", Attempt: 1, MaxAttempts: 3, EnqueuedAt: at, Module: "m"},
		{RunID: "r", Job: "j", Queue: "q", Tenant: "t", Attempt: 2, MaxAttempts: 3, EnqueuedAt: at, Deadline: at.Add(time.Hour), Traceparent: "00-", Module: "m"},
	} {
		b, err := AppendMeta(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadMeta(b); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s, %v: %s", b, err, cmp.Diff(want, got))
		}
	}
}

func TestHTTPRequestIsChecked(t *testing.T) {
	r, err := DecodeHTTPRequest([]byte(`{"url":"https://api.example.com/v1","headers":{"X-A":"b"},"body64":"/w==","timeout_ms":500}`))
	if err != nil || r.Method != "GET" || string(r.Content) != "\xff" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, c := range []struct {
		json string
		code abi.Code
		want string
	}{
		{`{"method":"GE T","url":"https://a/"}`, abi.CodeInvalid, "method"},
		{`{"url":"/relative"}`, abi.CodeInvalid, "neither http nor https"},
		{`{"url":"file:///etc/passwd"}`, abi.CodeInvalid, "neither http nor https"},
		{`{"url":"https://"}`, abi.CodeInvalid, "no host"},
		{`{"url":"https://user:hunter2@a/"}`, abi.CodeInvalid, "user name"},
		{`{"url":"https://a/b c hunter2"}`, abi.CodeInvalid, "at byte 11"},
		{`{"url":"https://a\\\\@b/hunter2"}`, abi.CodeInvalid, "backslash"},
		{`{"url":"https://a@b?hunter2"}`, abi.CodeInvalid, "user name"},
		{`{"url":"https://:80/hunter2"}`, abi.CodeInvalid, "no host"},
		{`{"url":"https:/a/hunter2"}`, abi.CodeInvalid, "scheme"},
		{`{"url":"https://a/","headers":{"X\r\nY":"b"}}`, abi.CodeInvalid, "header's name"},
		{`{"url":"https://a/","headers":{"X":"b\r\nY: c"}}`, abi.CodeInvalid, `header "X"`},
		{`{"url":"https://a/","headers":{"X":"b\u0001c"}}`, abi.CodeInvalid, `header "X"`},
		{`{"url":"https://a/","headers":{"X":"b\u007fc"}}`, abi.CodeInvalid, `header "X"`},
		{`{"url":"https://a/","headers":{"X":"` + strings.Repeat("b", maxHeader+1) + `"}}`, abi.CodeLimit, `header "X"`},
		{`{"url":"https://a/","headers":{"X-A":"b","x-a":"c"}}`, abi.CodeInvalid, `"x-a" is there twice`},
		{`{"url":"https://a/","body":"a","body64":"YQ=="}`, abi.CodeInvalid, "both body and body64"},
		{`{"url":"https://a/","body64":"?"}`, abi.CodeInvalid, "not base64"},
		{`{"url":"https://a/","timeout_ms":-1}`, abi.CodeInvalid, "timeout_ms"},
		{`{"url":"https://a/","redirect":true}`, abi.CodeInvalid, `unknown field "redirect"`},
		{`{"url":"https://a/` + strings.Repeat("a", maxURL) + `"}`, abi.CodeLimit, "URL of"},
		{`{"url":"https://a/","body":"` + strings.Repeat("a", maxHTTPBody+1) + `"}`, abi.CodeLimit, "body of"},
		{`{"url":"https://a/","headers":{` + manyHeaders(101) + `}}`, abi.CodeLimit, "101 headers"},
	} {
		_, err := DecodeHTTPRequest([]byte(c.json))
		if refusalCode(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: %v, want code %d with %q", c.json, err, c.code, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats the URL: %v", err)
		}
	}
	if _, err := DecodeHTTPRequest([]byte(`{`)); !isViolation(err) {
		t.Errorf("broken: %v", err)
	}
}

func manyHeaders(n int) string {
	var hs []string
	for i := range n {
		hs = append(hs, fmt.Sprintf(`"X-%d":"v"`, i))
	}
	return strings.Join(hs, ",")
}

func TestHTTPBodyCrossesAsTextOrBase64(t *testing.T) {
	for _, body := range []string{"", "text é", "\xff\x00\xfe"} {
		b, err := AppendHTTPResponse(nil, abi.HTTPResponse{Status: 200, Headers: map[string]string{"A": "b"}}, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		r, got, err := ReadHTTPResponse(b)
		if err != nil || r.Status != 200 || r.Headers["A"] != "b" || string(got) != body {
			t.Errorf("%s: %+v, %q, %v", b, r, got, err)
		}
	}
}
