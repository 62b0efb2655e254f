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

func refusalCode(err error) abi.Code {
	var r *abi.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return 0
}

func isViolation(err error) bool {
	var v *abi.Violation
	return errors.As(err, &v)
}

func TestEnqueueCrossesAsObjectOrArray(t *testing.T) {
	low := -5
	one := abi.EnqueueParams{Job: "send-digest", Input: json.RawMessage(`{"n":1e400,"s":"\u0000"}`)}
	full := abi.EnqueueParams{Job: "größe \"x\"", Input: json.RawMessage("null"), Key: "k\n", Tenant: "t", DelayMS: 3_600_000, Priority: &low}
	at := abi.EnqueueParams{Job: "c", Input: json.RawMessage("[1]"), RunAt: time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC)}
	for _, runs := range [][]abi.EnqueueParams{{one}, {full}, {at}, {one, full, at}, {}} {
		b := AppendEnqueue(nil, runs...)
		got, err := DecodeEnqueue(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if d := cmp.Diff(runs, got); d != "" {
			t.Errorf("%s: %s", b, d)
		}
	}
}

func TestEnqueueRefusesAllOfARequestOrNothing(t *testing.T) {
	big := `"` + strings.Repeat("x", abi.MaxInput) + `"`
	for _, c := range []struct {
		json string
		code abi.Code
		want string
	}{
		{`{"job":"a","priorty":1}`, abi.CodeInvalid, `unknown field "priorty"`},
		{`[{"job":"a"},{"job":""}]`, abi.CodeInvalid, "entry 1 of the request: the job's name is empty"},
		{`{"input":1}`, abi.CodeInvalid, "name is empty"},
		{`{"job":"a\nb"}`, abi.CodeInvalid, "control character"},
		{`{"job":7}`, abi.CodeInvalid, "cannot unmarshal"},
		{`{"job":"a","delay_ms":1.5}`, abi.CodeInvalid, "cannot unmarshal"},
		{`{"job":"a","delay_ms":-1}`, abi.CodeInvalid, "delay_ms is -1"},
		{`{"job":"a","delay_ms":1,"run_at":"2031-01-01T00:00:00Z"}`, abi.CodeInvalid, "both delay_ms and run_at"},
		{`{"job":"a","run_at":"tomorrow"}`, abi.CodeInvalid, "tomorrow"},
		{`null`, abi.CodeInvalid, "not an object"},
		{`[null]`, abi.CodeInvalid, "entry 0 of the request: it is not an object"},
		{`"a"`, abi.CodeInvalid, "not an object"},
		{`{"job":"a","delay_ms":9223372036854775807}`, abi.CodeLimit, "ten years"},
		{`{"job":"a","input":` + big + `}`, abi.CodeLimit, "has 1048578 bytes"},
		{`[` + strings.Repeat(`{"job":"a"},`, abi.MaxEnqueue) + `{"job":"a"}]`, abi.CodeLimit, "1001 runs"},
		{`{"job":"` + strings.Repeat("a", abi.MaxEnqueueBytes) + `"}`, abi.CodeLimit, "the request has"},
	} {
		runs, err := DecodeEnqueue([]byte(c.json))
		if refusalCode(err) != c.code || !strings.Contains(err.Error(), c.want) || runs != nil {
			t.Errorf("%.60s: %v, want code %d with %q", c.json, err, c.code, c.want)
		}
	}
	for _, s := range []string{``, `{"job":"a"`, `{"job":"a","job":"b"}`, "{\"job\":\"\xff\"}"} {
		if _, err := DecodeEnqueue([]byte(s)); !isViolation(err) {
			t.Errorf("%q: %v, want a violation", s, err)
		}
	}
}

func TestInvokeTakesOneRunOrSeveral(t *testing.T) {
	ps, err := DecodeInvoke([]byte(` {"job":"child","input":{"a":1}}`))
	if err != nil || len(ps) != 1 || ps[0].Job != "child" || string(ps[0].Input) != `{"a":1}` {
		t.Errorf("%+v, %v", ps, err)
	}
	ps, err = DecodeInvoke([]byte(`[{"job":"child"},{"job":"child","abandon":true}]`))
	if err != nil || len(ps) != 2 || ps[0].Abandon || !ps[1].Abandon {
		t.Errorf("%+v, %v", ps, err)
	}
	if again, err := DecodeInvoke(AppendEnqueue(nil, ps...)); err != nil || !cmp.Equal(ps, again) {
		t.Errorf("%+v, %v", again, err)
	}
	ps, err = DecodeInvoke([]byte(`{"job":"child","timeout_ms":1500}`))
	if again, err2 := DecodeInvoke(AppendEnqueue(nil, ps...)); err != nil || err2 != nil || ps[0].TimeoutMS != 1500 || !cmp.Equal(ps, again) {
		t.Errorf("with a timeout: %+v, %v, %v", ps, err, err2)
	}
	if _, err := DecodeEnqueue([]byte(`{"job":"child","timeout_ms":1500}`)); refusalCode(err) != abi.CodeInvalid {
		t.Errorf("an enqueue with a timeout: %v", err)
	}
	for _, s := range []string{
		`[]`, `[{"job":"child","limit":1}]`, `{"job":"child","abandon":"yes"}`, `{"job":"child","timeout_ms":0}`, `{"job":"child","timeout_ms":-1}`,
		`{"job":"child","timeout_ms":1.5}`,
	} {
		if _, err := DecodeInvoke([]byte(s)); refusalCode(err) != abi.CodeInvalid {
			t.Errorf("%s: %v", s, err)
		}
	}
	if _, err := DecodeEnqueue([]byte(`{"job":"child","abandon":true}`)); refusalCode(err) != abi.CodeInvalid {
		t.Errorf("an enqueue that abandons: %v", err)
	}
	if _, err := DecodeInvoke([]byte(`{`)); !isViolation(err) {
		t.Errorf("broken: %v", err)
	}
}

func TestEnqueuedComesBackInOrder(t *testing.T) {
	want := []abi.EnqueueResult{{ID: "r1"}, {ID: "r2", Deduped: true}}
	got, err := ReadEnqueued(AppendEnqueued(nil, want))
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzDecodeEnqueue(f *testing.F) {
	for _, s := range []string{`{"job":"a","input":{"x":[1]},"key":"k","tenant":"t","delay_ms":5,"priority":-1}`,
		`[{"job":"a","run_at":"2031-01-01T00:00:00.5+02:00"},{"job":"b"}]`, `[]`, ` {"job":"\u0061"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		runs, err := DecodeEnqueue(b)
		if err != nil {
			if !isViolation(err) && refusalCode(err) == 0 {
				t.Fatalf("%q: %T is neither a violation nor a refusal", b, err)
			}
			return
		}
		again, err := DecodeEnqueue(AppendEnqueue(nil, runs...))
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		for i := range runs {
			runs[i].RunAt = runs[i].RunAt.UTC()
			again[i].RunAt = again[i].RunAt.UTC()
		}
		if d := cmp.Diff(runs, again); d != "" {
			t.Fatalf("%q: %s", b, d)
		}
	})
}

func BenchmarkDecodeEnqueue(b *testing.B) {
	one := AppendEnqueue(nil, abi.EnqueueParams{Job: "send-digest", Input: json.RawMessage(tiny), Key: "k"})
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			arg := one
			if n > 1 {
				arg = []byte("[" + strings.TrimSuffix(strings.Repeat(string(one)+",", n), ",") + "]")
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeEnqueue(arg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
