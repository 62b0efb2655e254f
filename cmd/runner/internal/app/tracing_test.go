package app_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	spans "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/cmd/runner/internal/bench"
	"github.com/jobrunner/runner/cmd/runner/internal/otlptest"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
)

// What a collector receives of a run that was enqueued under a trace.
func TestSpansOfARunReachACollector(t *testing.T) {
	collector := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000") // for a collector that is slow, as the machine may be
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "3600000")
	wasm, err := bench.Guest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put(t, dir, "guest.wasm", string(wasm))
	put(t, dir, "jobs.toml", manifestText)
	put(t, dir, "schema.json", `{"type":"object"}`)
	s, err := app.StartServer(t.Context(), app.ServerConfig{
		Manifest: filepath.Join(dir, "jobs.toml"), Getenv: os.Getenv, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	res, err := s.Client().Enqueue(t.Context(), engine.Request{Job: "steps", Input: []byte(`{}`), Traceparent: "00-" + trace + "-" + parent + "-01"})
	if err != nil {
		t.Fatal(err)
	}
	if run, err := s.Client().Wait(t.Context(), res.ID); err != nil || run.State != job.Done {
		t.Fatal(run.State, err)
	}
	if err := s.Drain(t.Context()); err != nil { // flushes
		t.Fatal(err)
	}
	if !collector.Service("runner") {
		t.Error("the service is not the runner")
	}
	for _, sp := range collector.All() {
		if sp.Trace != trace {
			t.Errorf("%s is of trace %s", sp.Name, sp.Trace)
		}
	}
	enqueues, attempts, steps := collector.Named("enqueue steps"), collector.Named("attempt steps"), collector.Named("step")
	if len(enqueues) != 1 || len(attempts) != 1 || len(steps) == 0 {
		t.Fatalf("%d enqueues, %d attempts, %d steps", len(enqueues), len(attempts), len(steps))
	}
	if e := enqueues[0]; e.Parent != parent || e.Kind != spans.Span_SPAN_KIND_PRODUCER {
		t.Errorf("the enqueue is a %s under %s", e.Kind, e.Parent)
	}
	if a := attempts[0]; a.Parent != enqueues[0].ID {
		t.Errorf("the attempt is under %s, and the enqueue is %s", a.Parent, enqueues[0].ID)
	}
	for _, st := range steps {
		if st.Parent != attempts[0].ID {
			t.Errorf("a step is under %s, and the attempt is %s", st.Parent, attempts[0].ID)
		}
	}
}

func TestTracesThatCannotBeSentAreRefusedAtTheStart(t *testing.T) {
	for _, c := range [][2]string{
		{"OTEL_TRACES_EXPORTER", "zipkin"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		{"OTEL_TRACES_SAMPLER", "sometimes"},
		{"OTEL_TRACES_SAMPLER_ARG", "1.5"},
		{"OTEL_TRACES_SAMPLER_ARG", "a tenth"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", ":::hunter2"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://u:hunter2@collector"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "localhost:4318"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "api-key: hunter2"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=b,=hunter2"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api-key=hunter2%"},
	} {
		name, value := c[0], c[1]
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}
		env[name] = value
		dir := t.TempDir()
		put(t, dir, "jobs.toml", "")
		_, err := app.StartServer(t.Context(), app.ServerConfig{
			Manifest: filepath.Join(dir, "jobs.toml"), Getenv: func(k string) string { return env[k] },
		})
		if abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%s=%s: %v", name, value, err)
		} else if m := err.Error(); !strings.Contains(m, "OTEL_") && !strings.Contains(m, "http/protobuf") || strings.Contains(m, "hunter2") {
			t.Errorf("%s=%s is refused with %q", name, value, m)
		}
	}
}
