package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobrunner/runner/abi"
)

// goModule is testdata/goguest, built once.
var goModule = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "goguest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "goguest.wasm")
	build := exec.Command("go", "build", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, "./testdata/goguest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if msg, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, msg)
	}
	return os.ReadFile(file)
})

// goHost is a host with the Go module, shared by the tests of it: loading it
// costs seconds.
var goHost = sync.OnceValues(func() (*Host, error) {
	b, err := goModule()
	if err != nil {
		return nil, err
	}
	h, err := New(context.Background(), Config{TrimEvery: -1, Logger: quiet, MemoryLimit: 32 << 20})
	if err != nil {
		return nil, err
	}
	if _, err := h.Load(context.Background(), LoadParams{Bytes: b}); err != nil { // keeps the template
		return nil, errors.Join(err, h.Close(context.Background()))
	}
	goHostMade = true
	return h, nil
})

func goGuest(t testing.TB) (*Host, abi.Guest) {
	t.Helper()
	h, err := goHost()
	if err != nil {
		t.Fatal(err)
	}
	b, err := goModule()
	if err != nil {
		t.Fatal(err)
	}
	g := load(t, h, b)
	t.Cleanup(func() { g.(*Guest).Close() })
	return h, g
}

func TestMain(m *testing.M) {
	code := m.Run()
	if goHostMade {
		h, _ := goHost()
		if err := h.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code == 0 {
		code = leaks()
	}
	os.Exit(code)
}

// leaks gives goroutines that are ending a minute, of which a busy machine may
// need some.
func leaks() (code int) {
	for began := time.Now(); ; {
		err := goleak.Find()
		if err == nil {
			return 0
		}
		if time.Since(began) > time.Minute {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}

var goHostMade bool // goHost made one; read when all tests are over

func withInput(handler, input string) abi.Attempt {
	a := attempt(handler)
	a.Input = []byte(input)
	return a
}

func TestWhatAGoGuestDoesWrong(t *testing.T) {
	_, g := goGuest(t)
	for name, c := range map[string]struct {
		handler, input string
		kind           abi.OutcomeKind
		code           string
		failure        abi.FailureKind
		text           string // in the message or the stack
	}{
		"panic":                   {"panic", `{}`, abi.Failed, "", abi.FailRetry, "boom"},
		"nil dereference":         {"nil", `{}`, abi.Failed, "", abi.FailRetry, "nil pointer"},
		"panic in a goroutine":    {"panic-elsewhere", `{}`, abi.Crashed, abi.CodeGuestTrap, abi.FailRetry, "boom elsewhere"},
		"deadlock":                {"deadlock", `{}`, abi.Crashed, abi.CodeGuestDeadlock, abi.FailTerminal, "asleep"},
		"recursion without end":   {"recurse", `{}`, abi.Crashed, abi.CodeGuestMemory, abi.FailTerminal, "out of memory"},
		"more memory than it has": {"alloc", `{"n":200}`, abi.Crashed, abi.CodeGuestMemory, abi.FailTerminal, "limit is 32 MiB"},
		"exit 0":                  {"exit", `{"n":0}`, abi.Crashed, abi.CodeGuestNoOutput, abi.FailTerminal, "without calling output"},
		"exit 3":                  {"exit", `{"n":3}`, abi.Crashed, abi.CodeGuestExit, abi.FailRetry, "code 3"},
		"input that does not fit": {"noop", `{"n":"x"}`, abi.Failed, "", abi.FailTerminal, ""},
		"failure":                 {"fail", `{}`, abi.Failed, "", abi.FailTerminal, "no good"},
	} {
		t.Run(name, func(t *testing.T) {
			out := g.Run(t.Context(), withInput(c.handler, c.input), &script{})
			f := out.Failure
			if out.Kind != c.kind || f.Kind != c.failure || c.code != "" && f.Code != c.code {
				t.Fatalf("outcome %+v", out)
			}
			if !strings.Contains(f.Message+f.Stack, c.text) {
				t.Errorf("failure says %q\n%s", f.Message, f.Stack)
			}
			again(t, g)
		})
	}
}

// again checks that the guest works as if nothing had happened.
func again(t testing.TB, g abi.Guest) {
	t.Helper()
	calls := &script{}
	out := g.Run(context.Background(), withInput("signup", `{"org":"acme","n":5}`), calls)
	if out.Kind != abi.Done || string(out.Output) != `{"ok":true,"id":"org_acme","n":6}` || len(calls.steps) != 2 {
		t.Fatalf("afterwards: %+v, steps %q", out, calls.steps)
	}
}

func TestWhatAGoGuestMayDo(t *testing.T) {
	_, g := goGuest(t)
	for handler, c := range map[string]struct{ input, want string }{
		"noop":            {`{}`, `{"ok":true,"id":"","n":0}`},
		"alloc":           {`{"n":8}`, `{"ok":true,"id":"","n":0}`},
		"nap":             {`{}`, `{"ok":true,"id":"","n":60}`},
		"goroutines":      {`{"n":50}`, `{"ok":true,"id":"","n":1225}`},
		"leave-goroutine": {`{}`, `{"ok":true,"id":"","n":1}`},
		"gc":              {`{"n":10}`, `{"ok":true,"id":"","n":0}`},
	} {
		for range 2 { // the same from reset memory
			out := g.Run(t.Context(), withInput(handler, c.input), &script{})
			if out.Kind != abi.Done || string(out.Output) != c.want {
				t.Errorf("%s: %+v", handler, out)
			}
		}
	}
}

func TestMegabytesOfStdoutAreNoError(t *testing.T) {
	_, g := goGuest(t)
	calls := &script{}
	out := g.Run(t.Context(), withInput("print", `{"n":100000}`), calls)
	if out.Kind != abi.Done || out.Usage.StdioBytes < 1_000_000 || out.Usage.StdioDropped != out.Usage.StdioBytes-abi.MaxStdio {
		t.Errorf("outcome %+v", out)
	}
	if last := calls.lines[len(calls.lines)-1]; !strings.HasPrefix(last, "output truncated") {
		t.Errorf("last line %q of %d", last, len(calls.lines))
	}
}

// Random numbers, map order and time are a run's: every attempt of it sees the
// same, another run something else.
func TestAttemptsOfARunAreAlike(t *testing.T) {
	_, g := goGuest(t)
	read := func(seed uint64) string {
		a := withInput("ids", `{}`)
		a.Seed = seed
		out := g.Run(t.Context(), a, &script{})
		if out.Kind != abi.Done {
			t.Fatalf("outcome %+v", out)
		}
		return string(out.Output)
	}
	if a, b := read(1), read(1); a != b {
		t.Errorf("two attempts of one run: %s and %s", a, b)
	} else if c := read(2); a[:40] == c[:40] {
		t.Errorf("another run got the same random bytes: %s", c)
	} else if !strings.Contains(a, "2030-01-01T00:00:00Z") {
		t.Errorf("the guest's time is not the run's: %s", a)
	}
}

func TestSuspensionHoldsNothingAndResumesFromTheStart(t *testing.T) {
	h, g := goGuest(t)
	for range 50 {
		calls := &script{suspend: "cooldown"}
		out := g.Run(t.Context(), withInput("signup", `{"org":"acme","n":5}`), calls)
		if out.Kind != abi.Stopped || out.Err != errSuspended || len(calls.steps) != 2 {
			t.Fatalf("outcome %+v, steps %q", out, calls.steps)
		}
		if s := h.Stats(); s.Running != 0 || s.SlotsUsed != 0 {
			t.Fatalf("while suspended: %+v", s)
		}
		again(t, g)
	}
}

var errLost = errors.New("lease lost")

// A guest that computes for ever is stopped by its context, at a moment when it
// is known to compute.
func TestAnEndlessLoopIsStoppedAtATick(t *testing.T) {
	_, g := goGuest(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := &script{onBegin: func(context.Context, string) error {
		go cancel(errLost)
		return nil
	}}
	ended := make(chan abi.Outcome, 1)
	go func() { ended <- g.Run(ctx, withInput("spin", `{}`), calls) }()
	select {
	case out := <-ended:
		if out.Kind != abi.Stopped || out.Err != errLost {
			t.Errorf("outcome %+v", out)
		}
	case <-time.After(time.Minute): // what no machine takes from a tick to the next
		panic("the loop goes on") // and would keep the test from its end
	}
	again(t, g)
}

func TestGrantedEnvironmentIsSeenAndKeptApart(t *testing.T) {
	h, g := goGuest(t)
	b, _ := goModule()
	p := LoadParams{Bytes: b}
	p.Grants.Env = map[string]string{"REGION": "eu"}
	granted, err := h.Load(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer granted.(*Guest).Close()
	for g, want := range map[abi.Guest]string{g: "", granted: "eu"} {
		out := g.Run(t.Context(), withInput("env", `{}`), &script{})
		if !bytes.Contains(out.Output, []byte(`"id":"`+want+`"`)) {
			t.Errorf("REGION for grants %q: %+v", want, out)
		}
	}
}
