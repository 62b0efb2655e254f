package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/manifest"
)

// fakeGuest is a loaded module whose text is the list of its handlers.
type fakeGuest struct {
	abi.Guest
	digest   string
	handlers []abi.Handler
	closed   bool
}

func (g *fakeGuest) Digest() string            { return g.digest }
func (g *fakeGuest) Describe() abi.Description { return abi.Description{ABI: 1, Handlers: g.handlers} }

// fakeHost loads modules whose text names their handlers; one that begins with
// "bad" is refused for two reasons.
type fakeHost struct {
	mu     sync.Mutex
	loaded []*fakeGuest
}

func (h *fakeHost) Load(_ context.Context, _ manifest.Module, wasm []byte) (abi.Guest, error) {
	if strings.HasPrefix(string(wasm), "bad") {
		return nil, errors.Join(
			&abi.Error{Code: "X_ONE", Message: "first reason", Fix: "do one"},
			fmt.Errorf("second reason"))
	}
	g := &fakeGuest{digest: digestOf(wasm)}
	for _, name := range strings.Fields(string(wasm)) {
		g.handlers = append(g.handlers, abi.Handler{Name: name})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loaded = append(h.loaded, g)
	return g, nil
}

func (h *fakeHost) Close(g abi.Guest) { g.(*fakeGuest).closed = true }

// folder writes files and answers the path of the first.
func folder(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		write(t, filepath.Join(dir, files[i]), files[i+1])
	}
	return filepath.Join(dir, files[0])
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const twoModules = `[modules.a]
path = "a.wasm"

[modules.b]
path = "b.wasm"

[jobs.one]
module = "a"
tenant = "none"
key = "{run.id}"

[jobs.two]
module = "b"
tenant = "none"
key = "{run.id}"
`

func TestLoadGivesEachModuleAGuestAndKeepsACopy(t *testing.T) {
	path := folder(t, "jobs.toml", twoModules, "a.wasm", "one", "b.wasm", "two three")
	h := &fakeHost{}
	l, err := Load(t.Context(), LoadParams{Path: path, Loader: h.Load, Close: h.Close, Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a": "one", "b": "two three"} {
		if got := l.Guests[name]; got == nil || got.Digest() != digestOf([]byte(text)) {
			t.Errorf("guest of %s is %v", name, got)
		}
		if kept, err := (copies{dir: modulesDir(l.Manifest)}).get(digestOf([]byte(text))); err != nil || string(kept) != text {
			t.Errorf("copy of %s: %q, %v", name, kept, err)
		}
	}
	dir := filepath.Dir(path)
	if diff := cmp.Diff([]string{filepath.Join(dir, "a.wasm"), filepath.Join(dir, "b.wasm"), path}, l.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestLoadReportsEveryProblemOfEveryModuleAndClosesWhatItOpened(t *testing.T) {
	path := folder(t, "jobs.toml", twoModules+`
[modules.c]
path = "c.wasm"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"

[modules.d]
path = "d.wasm"
`, "a.wasm", "other", "b.wasm", "bad", "c.wasm", "x")
	h := &fakeHost{}
	_, err := Load(t.Context(), LoadParams{Path: path, Loader: h.Load, Close: h.Close})
	var report *manifest.Report
	if !errors.As(err, &report) {
		t.Fatalf("got %v, want a report", err)
	}
	var got []string
	for _, p := range report.Problems {
		got = append(got, fmt.Sprintf("%d %s %s", p.Line, p.Code, p.Key))
	}
	want := []string{
		"5 X_ONE modules.b.path",
		"5 X_MODULE_REFUSED modules.b.path",
		"7 X_HANDLER_UNKNOWN jobs.one.handler",
		"19 X_MODULE_PIN_MISMATCH modules.c.sha256",
		"22 X_MODULE_UNREADABLE modules.d.path",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s\n%s", diff, report.Text())
	}
	for _, g := range h.loaded {
		if !g.closed {
			t.Errorf("guest %.8s was left open", g.digest)
		}
	}
	if len(h.loaded) == 0 {
		t.Error("no guest was loaded at all")
	}
}

func TestLoadUsesAGuestAgainOnlyWhenBytesAndGrantsAreTheSame(t *testing.T) {
	path := folder(t, "jobs.toml", twoModules, "a.wasm", "one", "b.wasm", "two")
	h := &fakeHost{}
	p := LoadParams{Path: path, Loader: h.Load, Close: h.Close}
	load := func() *Loaded {
		t.Helper()
		l, err := Load(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		p.Before = l
		return l
	}
	first := load()
	if again := load(); again.Guests["a"] != first.Guests["a"] || again.Guests["b"] != first.Guests["b"] {
		t.Error("an unchanged module was loaded again")
	}
	write(t, filepath.Join(filepath.Dir(path), "a.wasm"), "one more")
	changed := load()
	if changed.Guests["a"] == first.Guests["a"] || changed.Guests["b"] != first.Guests["b"] {
		t.Error("after a changed, a must be new and b the same")
	}
	write(t, path, strings.Replace(twoModules, `path = "b.wasm"`, "path = \"b.wasm\"\nmemory = \"64MiB\"", 1))
	if granted := load(); granted.Guests["b"] == first.Guests["b"] || granted.Guests["a"] != changed.Guests["a"] {
		t.Error("after the grants of b changed, b must be new and a the same")
	}
	write(t, filepath.Join(filepath.Dir(path), "a.wasm"), "bad")
	if _, err := Load(t.Context(), p); err == nil {
		t.Fatal("a refused module was loaded")
	}
	for _, g := range h.loaded {
		if g.closed {
			t.Errorf("guest %.8s of the load before was closed by a load that was refused", g.digest)
		}
	}
}

func TestLoadEndsWithItsContext(t *testing.T) {
	path := folder(t, "jobs.toml", twoModules, "a.wasm", "one", "b.wasm", "two")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := &fakeHost{}
	if _, err := Load(ctx, LoadParams{Path: path, Loader: h.Load}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestLoadAnswersTheManifestsOwnReport(t *testing.T) {
	path := folder(t, "jobs.toml", "[jobs.x]\n")
	_, err := Load(t.Context(), LoadParams{Path: path})
	var report *manifest.Report
	if !errors.As(err, &report) {
		t.Fatalf("got %v, want a report", err)
	}
}
