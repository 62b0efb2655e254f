package abitest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
)

// GoGuest is the import path of the conformance guest.
const GoGuest = "github.com/jobrunner/runner/abi/abitest/guest"

// testGo runs the conformance guest, a module of a real toolchain.
func testGo(t *testing.T, load Load) {
	g, err := load(t, BuildGo(t, GoGuest))
	if err != nil {
		t.Fatalf("the module was refused: %v", err)
	}
	if d := g.Describe(); d.ABI != abi.Version || !strings.HasPrefix(d.SDK, "go/") || len(d.Handlers) < 10 || d.Handlers[0].Name != "story" {
		t.Errorf("description %+v", d)
	}
	for _, c := range []struct {
		handler, input string
		want           want
		check          func(t *testing.T, m *Memory, out abi.Outcome)
	}{
		{"fail", `"plain"`, want{kind: abi.Failed, code: "X_HOW", says: "failed plain"}, nil},
		{"fail", `"terminal"`, want{kind: abi.Failed, code: "X_HOW", fail: abi.FailTerminal, says: "wrapped: failed terminal"}, func(t *testing.T, _ *Memory, out abi.Outcome) {
			if out.Failure.Fix != "do otherwise" {
				t.Errorf("fix %q", out.Failure.Fix)
			}
		}},
		{"fail", `"retry-after"`, want{kind: abi.Failed, code: "X_HOW", fail: abi.FailRetryAfter}, waits(90 * time.Second)},
		{"fail", `"rate-limited"`, want{kind: abi.Failed, code: "X_HOW", fail: abi.FailRateLimited}, waits(time.Minute)},
		{"fail", `7`, want{kind: abi.Failed, code: "X_JOB_INPUT_INVALID", fail: abi.FailTerminal}, nil},
		{"panic", `{}`, want{kind: abi.Failed, says: "panic: boom"}, func(t *testing.T, _ *Memory, out abi.Outcome) {
			if !strings.Contains(out.Failure.Stack, "main.") {
				t.Errorf("stack %q", out.Failure.Stack)
			}
		}},
		{"nil", `{}`, want{kind: abi.Failed, says: "invalid memory address"}, nil},
		{"panic-elsewhere", `{}`, want{kind: abi.Crashed, code: abi.CodeGuestTrap, says: "in a goroutine"}, nil},
		{"deadlock", `{}`, want{kind: abi.Crashed, code: abi.CodeGuestDeadlock, fail: abi.FailTerminal}, nil},
		{"recursion", `{}`, want{kind: abi.Crashed, code: abi.CodeGuestMemory, fail: abi.FailTerminal}, nil},
		{"memory", `{}`, want{kind: abi.Crashed, code: abi.CodeGuestMemory, fail: abi.FailTerminal}, nil},
		{"exit", `0`, want{kind: abi.Crashed, code: abi.CodeGuestNoOutput, fail: abi.FailTerminal}, nil},
		{"exit", `3`, want{kind: abi.Crashed, code: abi.CodeGuestExit, says: "3"}, nil},
		{"print", `20000`, want{kind: abi.Done}, func(t *testing.T, _ *Memory, out abi.Outcome) {
			if out.Usage.StdioDropped == 0 || out.Usage.StdioBytes-out.Usage.StdioDropped != abi.MaxStdio {
				t.Errorf("%+v", out.Usage)
			}
		}},
		{"time", `{}`, want{kind: abi.Done, output: `"slept"`}, nil},
		{"facts", `"in"`, want{kind: abi.Done}, checkFacts},
		{"refused", `{}`, want{kind: abi.Done}, checkRefused},
	} {
		t.Run(c.handler+" "+c.input, func(t *testing.T) {
			m := NewMemory(Config{Jobs: []string{"child"}, Unsupported: abi.FeaturePublish})
			out := g.Run(context.Background(), m.Attempt(c.handler, []byte(c.input)), m)
			c.want.compare(t, m, out)
			if c.check != nil {
				c.check(t, m, out)
			}
			expectFresh(t, g)
		})
	}
	t.Run("story", func(t *testing.T) { testStory(t, g) })
	t.Run("spin", func(t *testing.T) {
		m := NewMemory(Config{})
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		calls := &overridden{Memory: m, log: func() { cancel(errStopped) }}
		want{kind: abi.Stopped, err: errStopped, lines: []string{"spinning"}}.compare(t, m, g.Run(ctx, m.Attempt("spin", []byte("{}")), calls))
		expectFresh(t, g)
	})
	t.Run("chance", func(t *testing.T) { testChance(t, g) })
}

// expectFresh runs the handler that counts in a global variable.
func expectFresh(t *testing.T, g abi.Guest) {
	t.Helper()
	m := NewMemory(Config{})
	if out := g.Run(context.Background(), m.Attempt("globals", []byte("{}")), m); out.Kind != abi.Done || string(out.Output) != "1" {
		t.Errorf("the next attempt ended %v %s (%+v), want done 1", out.Kind, out.Output, out.Failure)
	}
}

func checkFacts(t *testing.T, _ *Memory, out abi.Outcome) {
	var f struct {
		Meta     abi.Meta `json:"meta"`
		Attempt  int      `json:"attempt"`
		Final    bool     `json:"final"`
		Features uint64   `json:"features"`
		Input    string   `json:"input"`
	}
	if err := json.Unmarshal(out.Output, &f); err != nil {
		t.Fatalf("%s: %v", out.Output, err)
	}
	if f.Meta.RunID != "run-1" || f.Meta.Job != "job" || f.Meta.MaxAttempts != 3 || f.Attempt != 1 || f.Final || f.Input != "in" {
		t.Errorf("%+v", f)
	}
	if abi.Features(f.Features)&(abi.FeatureInvoke|abi.FeaturePublish) != abi.FeatureInvoke {
		t.Errorf("features %b", f.Features)
	}
}

func checkRefused(t *testing.T, _ *Memory, out abi.Outcome) {
	var got map[string]string
	if err := json.Unmarshal(out.Output, &got); err != nil {
		t.Fatalf("%s: %v", out.Output, err)
	}
	// What a host says besides the answer is its own affair here.
	for what, said := range got {
		got[what], _, _ = strings.Cut(said, " ")
	}
	want := map[string]string{
		"secret": "denied", "http outside a step": "inside", "http": "denied", "invoke inside a step": "outside",
		"unknown job": "invalid", "large input": "limit", "publish": "unsupported",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// testStory drives a run through failures, waits and children to its end, and
// then replays it once more.
func testStory(t *testing.T, g abi.Guest) {
	m := NewMemory(Config{
		MaxAttempts: 3,
		Events:      []Event{{Topic: "paid", Payload: []byte("5"), After: 72*time.Hour + 10*time.Minute}},
		Invoke: func(child abi.EnqueueParams) ([]byte, *abi.Failure) {
			if child.Job == "broken" {
				return nil, &abi.Failure{Code: "X_CHILD", Message: "broken"}
			}
			return []byte("42"), nil
		},
	})
	const input = `{"Name":"Ada"}`
	out := Drive(context.Background(), g, m, "story", []byte(input))
	if out.Kind != abi.Done {
		t.Fatalf("ended %v %+v %v", out.Kind, out.Failure, out.Err)
	}
	// 1 s and 2 s of backoff, 72 h of sleep, until the event at 72 h 10 min, an
	// hour without another. The run's clock begins at the first claim.
	const want = `{"attempts":[3,3],"declined":"no funds/another card","child":"child-1","paid":5,"timeout":true,"doubled":42,` +
		`"pages":["page 0","page 1","page 2"],"run_time":263400000000000,"last_error":"X_CHILD"}`
	if string(out.Output) != want {
		t.Errorf("told %s\nwant %s", out.Output, want)
	}
	bodies := map[string]int{}
	for _, l := range m.Lines() {
		bodies[l.Text]++
	}
	if w := map[string]int{"story of Ada": 1, "body flaky": 3, "body charge": 1, "body hand over": 1}; !reflect.DeepEqual(bodies, w) {
		t.Errorf("lines %v, want %v", bodies, w)
	}
	var sent []string
	for _, s := range m.Sent() {
		sent = append(sent, fmt.Sprint(s.Topic, s.Run.Job, string(s.Run.Input), string(s.Payload), s.Run.DelayMS, s.Run.Key))
	}
	if w := []string{`child{"for":"Ada"}3600000k`, `child20`, `told"Ada"0`, `double210`, `broken10`}; !slices.Equal(sent, w) {
		t.Errorf("sent %q, want %q", sent, w)
	}
	if p, note := m.LatestProgress(); p != 1000 || note != "page 2" {
		t.Errorf("progress %d %q", p, note)
	}
	records := len(m.Records())
	again := g.Run(context.Background(), m.Attempt("story", []byte(input)), m)
	if again.Kind != abi.Done || string(again.Output) != string(out.Output) || len(m.Records()) != records || len(m.Unreached()) != 0 {
		t.Errorf("the replay ended %v %s, with %d records of %d", again.Kind, again.Output, len(m.Records()), records)
	}
}

func testChance(t *testing.T, g abi.Guest) {
	draw := func(seed uint64) (c struct {
		Crypto string `json:"crypto"`
		Ctx    uint64 `json:"ctx"`
		InStep string `json:"in_step"`
	}) {
		m := NewMemory(Config{})
		a := m.Attempt("chance", []byte("{}"))
		a.Seed = seed
		out := g.Run(context.Background(), a, m)
		if err := json.Unmarshal(out.Output, &c); err != nil {
			t.Fatalf("ended %v %s: %v", out.Kind, out.Output, err)
		}
		return c
	}
	one, again, two := draw(1), draw(1), draw(2)
	if one.Crypto != again.Crypto || one.Ctx != again.Ctx {
		t.Errorf("one run's chance differs between attempts: %+v, %+v", one, again)
	}
	if one.Crypto == two.Crypto || one.Ctx == two.Ctx {
		t.Errorf("two runs have the same chance: %+v, %+v", one, two)
	}
	if one.InStep == again.InStep {
		t.Errorf("chance inside a step repeats: %+v, %+v", one, again)
	}
}
