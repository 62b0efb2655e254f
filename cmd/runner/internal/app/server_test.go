package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/cmd/runner/internal/bench"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
)

func TestMain(m *testing.M) {
	app.BePatient()
	code := m.Run()
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
			_, _ = fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}

// logged keeps what a server logs.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	return len(b), nil
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

const manifestText = `[modules.guest]
path = "guest.wasm"
[jobs.steps]
module = "guest"
tenant = "none"
key = "{run.id}"
input = "schema.json"
`

// serve starts a server of the benchmark's guest in a folder of its own.
func serve(t *testing.T) (s *app.Server, dir string, log *logged) {
	t.Helper()
	wasm, err := bench.Guest()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	put(t, dir, "guest.wasm", string(wasm))
	put(t, dir, "jobs.toml", manifestText)
	put(t, dir, "schema.json", `{"type":"object"}`)
	log = &logged{}
	s, err = app.StartServer(t.Context(), app.ServerConfig{
		Manifest: filepath.Join(dir, "jobs.toml"), Getenv: func(string) string { return "" }, Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, dir, log
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func runOne(t *testing.T, s *app.Server, input string) error {
	t.Helper()
	res, err := s.Client().Enqueue(t.Context(), engine.Request{Job: "steps", Input: []byte(input)})
	if err != nil {
		return err
	}
	run, err := s.Client().Wait(t.Context(), res.ID)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := s.Client().Steps(t.Context(), res.ID)
	if err != nil || run.State != job.Done || len(steps) != bench.StepsPerRun {
		t.Fatalf("run ended %s (%v) with %d steps, %v", run.State, run.Error, len(steps), err)
	}
	return nil
}

func get(t *testing.T, s *app.Server, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + s.Addr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode, string(b)
}

// ready is what /readyz answers. A look at the database that takes two seconds is
// no answer.
func ready(t *testing.T, s *app.Server) (status int, body string) {
	t.Helper()
	for {
		if status, body = get(t, s, "/readyz"); !strings.Contains(body, "the database does not answer") {
			return status, body
		}
	}
}

func TestServerWorksReportsAndLeavesNothingRunning(t *testing.T) {
	s, dir, log := serve(t)
	if err := runOne(t, s, `{}`); err != nil {
		t.Fatal(err)
	}
	if status, body := ready(t, s); status != http.StatusOK {
		t.Fatalf("ready: %d %s", status, body)
	}
	if _, body := get(t, s, "/metrics"); !strings.Contains(body, `runner_steps_total{result="run"} 5`) || !strings.Contains(body, "runner_host_modules 1") {
		t.Errorf("metrics lack the steps or the instances:\n%s", body)
	}
	if err := s.Engine().Stop(); err != nil {
		t.Fatal(err)
	}
	if status, body := ready(t, s); status != http.StatusServiceUnavailable || !strings.Contains(body, "no lease") {
		t.Errorf("ready without a lease: %d %s", status, body)
	}
	if err := s.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !log.has("serve.stopped") {
		t.Error("the end was not logged")
	}
	// Nothing holds the database any more.
	again, err := app.StartServer(t.Context(), app.ServerConfig{Manifest: filepath.Join(dir, "jobs.toml"), Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestServerThatCannotStartLeavesNothingBehind(t *testing.T) {
	s, dir, _ := serve(t)
	defer func() { _ = s.Drain(context.Background()) }()
	for _, c := range []struct {
		name string
		cfg  app.ServerConfig
		code string
	}{
		{"served already", app.ServerConfig{}, job.CodeDatabaseBusy},
		{"address taken", app.ServerConfig{Database: "sqlite:" + filepath.Join(dir, "other.db"), Listen: s.Addr()}, app.CodeListen},
		{"no folder", app.ServerConfig{Database: "sqlite:" + filepath.Join(dir, "no", "x.db")}, job.CodeDatabaseUnavailable},
		{"a folder", app.ServerConfig{Database: "sqlite:" + dir}, job.CodeDatabaseUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Manifest, c.cfg.Getenv = filepath.Join(dir, "jobs.toml"), func(string) string { return "" }
			if second, err := app.StartServer(t.Context(), c.cfg); abi.CodeOf(err) != c.code || second != nil {
				t.Errorf("got %v, want %s", err, c.code)
			}
		})
	}
}

func TestReloadServesAChangedSchemaAndRefusesABrokenManifest(t *testing.T) {
	s, dir, log := serve(t)
	defer func() { _ = s.Drain(context.Background()) }()
	ctx := context.Background()
	if s.Reload(ctx) {
		t.Error("a reload without a change says that something changed")
	}

	put(t, dir, "schema.json", `{"type":"object","required":["name"]}`)
	if !s.Reload(ctx) || !log.has("serve.reloaded") {
		t.Error("a changed schema was not loaded")
	}
	if err := runOne(t, s, `{}`); abi.CodeOf(err) != job.CodeInputInvalid {
		t.Errorf("the schema before is still served: %v", err)
	}

	put(t, dir, "jobs.toml", strings.Replace(manifestText, `"guest.wasm"`, `"gone.wasm"`, 1)+"surprise = 1\n")
	if s.Reload(ctx) || !log.has("serve.reload-refused") || !log.has("surprise") {
		t.Errorf("a broken manifest was loaded, or its problem not logged")
	}
	put(t, dir, "jobs.toml", strings.Replace(manifestText, `"guest.wasm"`, `"gone.wasm"`, 1))
	if s.Reload(ctx) || !log.has("gone.wasm") {
		t.Error("a manifest with a missing module was loaded, or its problem not logged")
	}
	if files, _ := json.Marshal(s.Files()); !strings.Contains(string(files), "gone.wasm") {
		t.Errorf("the module that is waited for is not watched: %s", files)
	}
	if err := runOne(t, s, `{"name":"a"}`); err != nil {
		t.Errorf("what was served before is not served any more: %v", err)
	}
}

func TestStopCutsADrainShort(t *testing.T) {
	s, _, _ := serve(t)
	done := make(chan error, 1)
	go func() { done <- s.Drain(context.Background()) }()
	_ = s.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTryRunsAJobInMemory(t *testing.T) {
	wasm, err := bench.Guest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put(t, dir, "guest.wasm", string(wasm))
	put(t, dir, "jobs.toml", manifestText)
	put(t, dir, "schema.json", `{"type":"object"}`)
	p := app.TryParams{Manifest: filepath.Join(dir, "jobs.toml"), Request: engine.Request{Job: "steps", Input: []byte(`{}`)}}
	tried, err := app.Try(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(tried) != 1 || tried[0].Run.State != job.Done || len(tried[0].Steps) != bench.StepsPerRun {
		t.Errorf("got %+v", tried)
	}
	p.Request.Job = "nope"
	if _, err := app.Try(t.Context(), p); abi.CodeOf(err) != job.CodeUnknownJob {
		t.Errorf("unknown job: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := app.Try(ctx, p); err == nil {
		t.Error("a try goes on although its context has ended")
	}
}
