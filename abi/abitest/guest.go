package abitest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// Load loads a module into the host under test, and closes what it must with
// tb.Cleanup. The guest gets at least 32 MiB of memory and at most 1 GiB, and no
// grants. A module that the host refuses is an error; anything else that goes
// wrong fails the test.
type Load func(tb testing.TB, wasm []byte) (abi.Guest, error)

// TestGuest runs every case of the contract that can be told from outside over
// a host: what a guest may call and what it is answered, how each way to fail
// is classified, what is refused at load; first with modules assembled for one
// case each, then with one written in Go against package guest.
//
// After every case the same guest runs once more, in memory that must be as
// new.
func TestGuest(t *testing.T, load Load) {
	for _, group := range []struct {
		name  string
		cases []guestCase
	}{
		{"Ends", endCases}, {"Traps", trapCases}, {"Bounds", boundsCases}, {"Results", resultCases}, {"Steps", stepCases},
		{"Timers", timerCases}, {"Emitter", emitterCases}, {"Journal", journalCases}, {"Clock", clockCases}, {"Host", hostCases},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) { c.test(t, load) })
			}
		})
	}
	t.Run("Load", func(t *testing.T) { testLoad(t, load) })
	t.Run("Concurrent", func(t *testing.T) { testConcurrent(t, load) })
	t.Run("Go", func(t *testing.T) { testGo(t, load) })
}

// guestCase is a body of a handler, and how an attempt of it ends.
type guestCase struct {
	name   string
	config Config
	input  string // null if empty
	// body leaves runner_run's answer on the stack; if it is nil, text is used.
	body func(f *fixture, c *wasmasm.Code)
	// calls wraps the Memory; stop ends the attempt's context with errStopped.
	calls func(m *Memory, stop func()) abi.Calls
	want  want
	check func(t *testing.T, m *Memory, out abi.Outcome)
}

// want is how an attempt must end. Zero fields are not looked at, except that
// Kind is always compared, and fail wherever a failure is.
type want struct {
	kind   abi.OutcomeKind
	code   string          // of the failure
	fail   abi.FailureKind // of the failure
	says   string          // part of the failure's message
	output string
	err    error    // of a stopped one, untouched
	lines  []string // logged
}

func (c guestCase) test(t *testing.T, load Load) {
	g, err := load(t, newFixture().build(t, c.body))
	if err != nil {
		t.Fatalf("the module was refused: %v", err)
	}
	m := NewMemory(c.config)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var calls abi.Calls = m
	if c.calls != nil {
		calls = c.calls(m, func() { cancel(errStopped) })
	}
	input := []byte(or(c.input, "null"))
	out := g.Run(ctx, m.Attempt(handlerCase, input), calls)
	c.want.compare(t, m, out)
	if c.check != nil {
		c.check(t, m, out)
	}
	expectPristine(t, g)
}

// expectPristine runs the handler that tells whether its memory is new.
func expectPristine(t *testing.T, g abi.Guest) {
	t.Helper()
	for range 2 {
		m := NewMemory(Config{})
		out := g.Run(context.Background(), m.Attempt(handlerAfter, []byte("null")), m)
		if out.Kind != abi.Done || string(out.Output) != pristine {
			t.Fatalf("the next attempt ended %v %s (%v), want done %s: [attempts by memory, by global, pages]", out.Kind, out.Output, out.Err, pristine)
		}
	}
}

func (w want) compare(t *testing.T, m *Memory, out abi.Outcome) {
	t.Helper()
	if out.Kind != w.kind {
		t.Fatalf("ended %v (failure %+v, err %v), want %v", out.Kind, out.Failure, out.Err, w.kind)
	}
	if w.output != "" && string(out.Output) != w.output {
		t.Errorf("output %s, want %s", out.Output, w.output)
	}
	if w.err != nil && out.Err != w.err {
		t.Errorf("err %v, want %v itself", out.Err, w.err)
	}
	if out.Kind == abi.Failed || out.Kind == abi.Crashed {
		if out.Failure.Code != w.code || out.Failure.Kind != w.fail {
			t.Errorf("failure %s of kind %d, want %s of kind %d: %s", out.Failure.Code, out.Failure.Kind, w.code, w.fail, out.Failure.Message)
		}
		if !strings.Contains(out.Failure.Message, w.says) {
			t.Errorf("failure says %q, want it to say %q", out.Failure.Message, w.says)
		}
	}
	if out.Kind == abi.Crashed && out.Err == nil {
		t.Error("a crash without its cause for the log")
	}
	if w.lines != nil {
		var lines []string
		for _, l := range m.Lines() {
			lines = append(lines, l.Text)
		}
		if !slices.Equal(lines, w.lines) {
			t.Errorf("it said %q, want %q", lines, w.lines)
		}
	}
}

func testConcurrent(t *testing.T, load Load) {
	wasm := newFixture().build(t, func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncInput)
		n := c.Local(wasmasm.I32)
		f.do(c, abi.FuncResultRead, atBuffer, bufferLen, 0).LocalSet(n)
		c.I32Const(atBuffer).LocalGet(n).Call(f.fns[abi.FuncOutput])
	})
	g, err := load(t, wasm)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(wasm); g.Digest() != hex.EncodeToString(sum[:]) {
		t.Errorf("digest %s is not the SHA-256 of the module", g.Digest())
	}
	d := g.Describe()
	if d.ABI != abi.Version || d.SDK != "abitest" || len(d.Handlers) != 2 || d.Handlers[0].Name != handlerCase {
		t.Errorf("description %+v", d)
	}
	const workers, each = 8, 50
	errs := make(chan string, workers*each)
	for w := range workers {
		go func() {
			for i := range each {
				input := []byte{'"', byte('a' + w), byte('0' + i%10), '"'}
				m := NewMemory(Config{})
				out := g.Run(context.Background(), m.Attempt(handlerCase, input), m)
				if out.Kind != abi.Done || string(out.Output) != string(input) {
					errs <- out.Kind.String() + " " + string(out.Output) + " for " + string(input)
					continue
				}
				errs <- ""
			}
		}()
	}
	for range workers * each {
		if e := <-errs; e != "" {
			t.Error(e)
		}
	}
	expectPristine(t, g)
	m := NewMemory(Config{})
	if out := g.Run(context.Background(), m.Attempt("no such handler", nil), m); out.Kind != abi.Crashed || out.Failure.Code == "" {
		t.Errorf("a handler that does not exist ended %v %+v", out.Kind, out.Failure)
	}
}
