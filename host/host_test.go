package host

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/capability"
	"github.com/jobrunner/runner/host/instance"
	"github.com/jobrunner/runner/host/module"
)

func simple(t testing.TB, output string) []byte {
	f := newFixture(2, 16)
	f.handler("h", func(c *wasmasm.Code) { f.done(c, output) })
	f.handler("wait", func(c *wasmasm.Code) {
		f.do(c, abi.FuncStepBegin, "waiting", 0)
		f.do(c, abi.FuncStepEnd, "1")
		f.done(c, output)
	})
	return f.bytes(t)
}

func TestLoadsOfTheSameModuleShareATemplate(t *testing.T) {
	h := newHost(t, Config{})
	b := simple(t, "1")
	var guests []abi.Guest
	add := func(p LoadParams) {
		t.Helper()
		p.Bytes = b
		g, err := h.Load(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		guests = append(guests, g)
	}
	templates := func(want int) {
		t.Helper()
		if got := h.Stats().Instances.Templates; got != want {
			t.Errorf("%d templates, want %d", got, want)
		}
	}
	add(LoadParams{})
	add(LoadParams{MemoryLimit: h.cfg.MemoryLimit})
	add(LoadParams{Digest: guests[0].Digest()})
	templates(1)
	add(LoadParams{MemoryLimit: 2 << 20})
	templates(2)
	add(LoadParams{Grants: capability.Grants{Env: map[string]string{"A": "1"}}})
	templates(3)
	for i, g := range guests {
		if out := g.Run(t.Context(), attempt("h"), &script{}); out.Kind != abi.Done {
			t.Errorf("guest %d: %+v", i, out)
		}
	}
	closeGuest := func(i int) { guests[i].(io.Closer).Close() }
	closeGuest(4)
	templates(2)
	closeGuest(0)
	closeGuest(0) // once is enough
	closeGuest(1)
	templates(2)
	if out := guests[2].Run(t.Context(), attempt("h"), &script{}); out.Kind != abi.Done {
		t.Errorf("the guest that is still open: %+v", out)
	}
	closeGuest(2)
	closeGuest(3)
	templates(0)
	freed(h)
	add(LoadParams{}) // from the start
	if out := guests[5].Run(t.Context(), attempt("h"), &script{}); out.Kind != abi.Done {
		t.Errorf("loaded again: %+v", out)
	}
}

func TestConcurrentLoadsMakeOneTemplate(t *testing.T) {
	h := newHost(t, Config{})
	b := simple(t, "1")
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			g, err := h.Load(t.Context(), LoadParams{Bytes: b})
			if err != nil {
				t.Error(err)
				return
			}
			if out := g.Run(t.Context(), attempt("h"), &script{}); out.Kind != abi.Done {
				t.Errorf("outcome %+v", out)
			}
			g.(io.Closer).Close()
		}()
	}
	wg.Wait()
	if s := settled(h).Instances; s.Templates != 0 {
		t.Errorf("stats %+v", s)
	}
}

// One caller that gives up must not fail the others that wait for the same.
func TestAWaitingLoadTakesOverFromOneThatGaveUp(t *testing.T) {
	var s share[string, int]
	ctx, cancel := context.WithCancelCause(t.Context())
	started, second := make(chan struct{}), make(chan error)
	go func() {
		<-started
		go func() {
			v, release, err := s.get(t.Context(), "k", func() (int, error) { return 2, nil }, func(int) {})
			if err == nil {
				release()
				if v != 2 {
					err = errors.New("got the wrong value")
				}
			}
			second <- err
		}()
		cancel(errLost)
	}()
	_, _, err := s.get(ctx, "k", func() (int, error) {
		close(started)
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}, func(int) {})
	if !errors.Is(err, errLost) {
		t.Errorf("the first: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the second: %v", err)
	}
	if len(s.entries) != 0 {
		t.Error("an entry is left")
	}
}

func TestAFailureIsNotShared(t *testing.T) {
	var s share[string, int]
	boom := errors.New("boom")
	if _, _, err := s.get(t.Context(), "k", func() (int, error) { return 0, boom }, func(int) {}); err != boom {
		t.Errorf("error %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _, _ = s.get(t.Context(), "k", func() (int, error) { panic("boom") }, func(int) {})
	}()
	v, release, err := s.get(t.Context(), "k", func() (int, error) { return 1, nil }, func(int) {})
	if v != 1 || err != nil {
		t.Errorf("after failures: %d, %v", v, err)
	}
	release()
}

// waiting is a guest in a step that does not end before release is closed.
func waiting(t *testing.T, g abi.Guest) (release func(), ended chan abi.Outcome) {
	t.Helper()
	in, hold := make(chan struct{}), make(chan struct{})
	ended = make(chan abi.Outcome, 1)
	go func() {
		ended <- g.Run(context.Background(), attempt("wait"), &script{onBegin: func(context.Context, string) error {
			close(in)
			<-hold
			return nil
		}})
	}()
	<-in
	return func() { close(hold) }, ended
}

func TestAnUnloadedGuestFinishesWhatItRuns(t *testing.T) {
	h := newHost(t, Config{})
	g := load(t, h, simple(t, `"finished"`))
	release, ended := waiting(t, g)
	g.(io.Closer).Close()
	if s := h.Stats().Instances; s.Templates != 0 {
		t.Errorf("stats %+v", s)
	}
	if len(h.modules.entries) != 1 {
		t.Error("the module was freed while an attempt runs it")
	}
	if out := g.Run(t.Context(), attempt("h"), &script{}); out.Kind != abi.Crashed || out.Failure.Code != abi.CodeHostFailure {
		t.Errorf("an attempt after the guest was closed: %+v", out)
	}
	release()
	if out := <-ended; out.Kind != abi.Done || string(out.Output) != `"finished"` {
		t.Errorf("outcome %+v", out)
	}
	freed(h)
}

func TestCloseWaitsForAttempts(t *testing.T) {
	h, err := New(t.Context(), Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	g := load(t, h, simple(t, `"finished"`))
	release, ended := waiting(t, g)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errLost)
	if err := h.Close(ctx); !errors.Is(err, errLost) {
		t.Errorf("close while an attempt runs: %v", err)
	}
	if _, err := h.Load(t.Context(), LoadParams{Bytes: simple(t, "2")}); !errors.Is(err, ErrClosed) {
		t.Errorf("load after close: %v", err)
	}
	if out := g.Run(t.Context(), attempt("h"), &script{}); out.Kind != abi.Crashed || out.Failure.Code != abi.CodeHostFailure || !errors.Is(out.Err, ErrClosed) {
		t.Errorf("run after close: %+v", out)
	}
	release()
	if out := <-ended; out.Kind != abi.Done {
		t.Errorf("outcome %+v", out)
	}
	for range 2 {
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestAnAttemptThatGetsNoSlotIsStopped(t *testing.T) {
	h := newHost(t, Config{CPUSlots: 1})
	g := load(t, h, hostile(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	looping := make(chan struct{})
	first := make(chan abi.Outcome, 1)
	go func() {
		first <- g.Run(ctx, attempt("loop"), &script{onBegin: func(context.Context, string) error { close(looping); return nil }})
	}()
	<-looping
	cancelled, stop := context.WithCancelCause(t.Context())
	stop(errLost)
	if out := g.Run(cancelled, attempt("good"), &script{}); out.Kind != abi.Stopped || out.Err != errLost {
		t.Errorf("outcome %+v", out)
	}
	cancel(errLost)
	<-first
}

func TestModulesFromFiles(t *testing.T) {
	h := newHost(t, Config{CacheDir: filepath.Join(t.TempDir(), "cache")})
	file := filepath.Join(t.TempDir(), "m.wasm")
	if err := os.WriteFile(file, simple(t, `"file"`), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := h.Load(t.Context(), LoadParams{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	if out := g.Run(t.Context(), attempt("h"), &script{}); string(out.Output) != `"file"` {
		t.Errorf("outcome %+v", out)
	}
	if _, err := h.Load(t.Context(), LoadParams{Path: file, Digest: strings.Repeat("0", 64)}); abi.CodeOf(err) != module.CodeDigest {
		t.Errorf("wrong digest: %v", err)
	}
	if _, err := h.Load(t.Context(), LoadParams{Path: file + "x"}); abi.CodeOf(err) != module.CodeUnreadable {
		t.Errorf("no file: %v", err)
	}
	if _, err := h.Load(t.Context(), LoadParams{Bytes: []byte("nonsense")}); abi.CodeOf(err) != module.CodeInvalid {
		t.Errorf("nonsense: %v", err)
	}
	if _, err := h.Load(t.Context(), LoadParams{Path: file, Grants: capability.Grants{HTTP: []string{"x"}}}); abi.CodeOf(err) != capability.CodeGrantInvalid {
		t.Errorf("bad grant: %v", err)
	}
}

// Whatever a system can do, guests see the same.
func TestEveryModeOfResettingGivesTheSameResults(t *testing.T) {
	b, err := goModule()
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	attempts := []abi.Attempt{
		withInput("noop", `{}`), withInput("signup", `{"org":"acme","n":5}`), withInput("ids", `{}`), withInput("nap", `{}`),
		withInput("goroutines", `{"n":20}`), withInput("alloc", `{"n":3}`), withInput("ids", `{}`), withInput("exit", `{"n":2}`),
		withInput("leave-goroutine", `{}`), withInput("panic", `{}`), withInput("signup", `{"org":"x","n":1}`),
	}
	results := map[instance.Mode]string{}
	for m := instance.Pagemap; m <= instance.Fresh; m++ {
		cfg := Config{CacheDir: cache, Pool: instance.Config{Mode: m}}
		if _, err := instance.New(cfg.Pool); err != nil {
			t.Logf("this system cannot reset by %s: %v", m, err)
			continue
		}
		h := newHost(t, cfg)
		g := load(t, h, b)
		if got, _ := g.(*Guest).template.Mode(); got != m {
			t.Fatalf("mode %s, want %s", got, m)
		}
		var all strings.Builder
		for _, a := range attempts {
			calls := &script{}
			out := g.Run(t.Context(), a, calls)
			all.WriteString(a.Handler + " " + out.Kind.String() + " " + string(out.Output) + " " + out.Failure.Message + " " + strings.Join(calls.steps, ",") + "\n")
		}
		results[m] = all.String()
		if first := results[instance.Fresh]; first != "" && m == instance.Fresh {
			for other, got := range results {
				if got != first {
					t.Errorf("%s:\n%s\n%s:\n%s", other, got, m, first)
				}
			}
		}
	}
}
