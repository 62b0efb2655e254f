package wire

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
)

func TestFailureCrossesWithItsKindAsParameter(t *testing.T) {
	for _, f := range []abi.Failure{
		{Kind: abi.FailRetry, Message: "m"},
		{Kind: abi.FailTerminal, Message: "card \"declined\"\n", Code: "X_CARD_DECLINED", Fix: "use another card", Stack: "main.go:1\n\tat"},
		{Kind: abi.FailRetryAfter, Message: "busy", RetryAfter: 1500 * time.Millisecond},
		{Kind: abi.FailRateLimited, Message: "429", RetryAfter: 0},
	} {
		got, err := DecodeFailure(abi.FuncFail, uint32(f.Kind), AppendFailure(nil, f))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(f, got); d != "" {
			t.Error(d)
		}
	}
}

func TestStatedWaitMustBeAUsableNumber(t *testing.T) {
	for _, c := range []struct {
		json string
		kind abi.FailureKind
		want abi.Failure
	}{
		{`{"message":"m","retry_after_ms":0.25}`, abi.FailRetryAfter, abi.Failure{Kind: abi.FailRetryAfter, RetryAfter: time.Millisecond}},
		{`{"message":"m","retry_after_ms":1e300}`, abi.FailRetryAfter, abi.Failure{Kind: abi.FailRetryAfter, RetryAfter: abi.MaxSleep}},
		{`{"message":"m","retry_after_ms":1e999}`, abi.FailRetryAfter, abi.Failure{Kind: abi.FailRetry}},
		{`{"message":"m","retry_after_ms":-1}`, abi.FailRetryAfter, abi.Failure{Kind: abi.FailRetry}},
		{`{"message":"m","retry_after_ms":"5"}`, abi.FailRetryAfter, abi.Failure{Kind: abi.FailRetry}},
		{`{"message":"m","retry_after_ms":null}`, abi.FailRetryAfter, abi.Failure{Kind: abi.FailRetry}},
		{`{"message":"m"}`, abi.FailRetryAfter, abi.Failure{Kind: abi.FailRetry}},
		{`{"message":"m"}`, abi.FailRateLimited, abi.Failure{Kind: abi.FailRateLimited}},
		{`{"message":"m","retry_after_ms":5}`, abi.FailTerminal, abi.Failure{Kind: abi.FailTerminal}},
	} {
		c.want.Message = "m"
		got, err := DecodeFailure(abi.FuncStepFail, uint32(c.kind), []byte(c.json))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s as kind %d: %s", c.json, c.kind, d)
		}
	}
}

func TestBadFailureIsAViolation(t *testing.T) {
	for _, c := range []struct {
		kind uint32
		json string
		want string
	}{
		{4, `{"message":"m"}`, "unknown failure kind 4"},
		{math.MaxUint32, `{"message":"m"}`, "unknown failure kind"},
		{0, `{"message":"m"`, "not strict JSON"},
		{0, `{"message":"m","message":"n"}`, "duplicate key"},
		{0, ``, "not strict JSON"},
		{0, `null`, "not an object"},
		{0, `"m"`, "not an object"},
		{0, `{"message":1}`, "wrong shape"},
		{0, `{"message":"m","code":"X A"}`, "the code"},
		{0, `{"message":"` + strings.Repeat("m", maxFailureArg) + `"}`, "larger than"},
	} {
		_, err := DecodeFailure(abi.FuncFail, c.kind, []byte(c.json))
		var v *abi.Violation
		if !errors.As(err, &v) || v.Func != abi.FuncFail || !strings.Contains(v.Detail, c.want) {
			t.Errorf("kind %d, %.40s: %v, want a violation of fail with %q", c.kind, c.json, err, c.want)
		}
	}
}

func TestUnknownFieldsOfAFailureAreIgnored(t *testing.T) {
	f, err := DecodeFailure(abi.FuncFail, 0, []byte(`{"message":"m","details":{"a":1}}`))
	if err != nil || f.Message != "m" {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestLongFailureIsCutToItsLimit(t *testing.T) {
	for _, s := range []string{"x", "\"", "\x01", "é", "\U0001f600", "\xff"} {
		long := strings.Repeat(s, 50_000)
		f := abi.Failure{Kind: abi.FailRateLimited, Message: long, Code: strings.Repeat("C", maxCode), Fix: long, Stack: long, RetryAfter: abi.MaxSleep}
		b := AppendFailure(nil, f)
		if len(b) > abi.MaxFailure || len(b) < abi.MaxFailure-200 {
			t.Errorf("%q: %d bytes", s, len(b))
		}
		if err := CheckJSON(b, abi.MaxFailure); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if got, err := ReadFailure(b); err != nil || !strings.HasSuffix(got.Message, "…") || len(got.Code) != maxCode {
			t.Errorf("%q: %v, message ends in %.10q", s, err, got.Message[max(0, len(got.Message)-6):])
		}
	}
}

func TestFailureAlwaysHasAMessageAndNeverABadCode(t *testing.T) {
	f, err := ReadFailure(AppendFailure(nil, abi.Failure{Code: "no code\n"}))
	if err != nil || f.Message == "" || f.Code != "" || f.Kind != abi.FailTerminal {
		t.Errorf("%+v, %v", f, err)
	}
}

func FuzzDecodeFailure(f *testing.F) {
	for _, s := range []string{`{"message":"m","code":"X_A","fix":"f","retry_after_ms":1.5,"stack":"s"}`, `{"message":null}`, `{}`, `[]`} {
		f.Add(uint32(2), []byte(s))
	}
	f.Fuzz(func(t *testing.T, kind uint32, b []byte) {
		x, err := DecodeFailure(abi.FuncFail, kind, b)
		if err != nil {
			return
		}
		again, err := DecodeFailure(abi.FuncFail, uint32(x.Kind), AppendFailure(nil, x))
		if err != nil || !cmp.Equal(x, again) {
			t.Fatalf("%+v came back as %+v, %v", x, again, err)
		}
	})
}

func TestAWaitThatIsKeptIsOneThatCanBe(t *testing.T) {
	for in, want := range map[time.Duration]time.Duration{-time.Second: 0, time.Hour: time.Hour, abi.MaxSleep + 1: abi.MaxSleep} {
		if got := ClipFailure(abi.Failure{Message: "m", RetryAfter: in}).RetryAfter; got != want {
			t.Errorf("%v becomes %v, want %v", in, got, want)
		}
	}
}
