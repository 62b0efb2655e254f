package app_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/cmd/runner/internal/bench"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
)

// What a collector receives of a run that was enqueued under a trace.
func TestSpansOfARunReachACollector(t *testing.T) {
	var mu sync.Mutex
	var got []*spans.Span
	services := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &req)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			for _, a := range rs.Resource.Attributes {
				if a.Key == "service.name" {
					services[a.Value.GetStringValue()] = true
				}
			}
			for _, ss := range rs.ScopeSpans {
				got = append(got, ss.Spans...)
			}
		}
	}))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
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
	mu.Lock()
	defer mu.Unlock()
	if !services["runner"] {
		t.Errorf("services %v", services)
	}
	attempt, enqueue := "", ""
	for _, sp := range got {
		if sp.Name == "enqueue steps" {
			enqueue = fmt.Sprintf("%x", sp.SpanId)
			if p := fmt.Sprintf("%x", sp.ParentSpanId); p != parent || sp.Kind != spans.Span_SPAN_KIND_PRODUCER {
				t.Errorf("the enqueue is a %s under %s", sp.Kind, p)
			}
		}
	}
	for _, sp := range got {
		if sp.Name == "attempt steps" {
			attempt = fmt.Sprintf("%x", sp.SpanId)
			if p := fmt.Sprintf("%x", sp.ParentSpanId); p != enqueue {
				t.Errorf("the attempt is under %s, and the enqueue is %s", p, enqueue)
			}
		}
		if id := fmt.Sprintf("%x", sp.TraceId); id != trace {
			t.Errorf("%s is of trace %s", sp.Name, id)
		}
	}
	steps := 0
	for _, sp := range got {
		if sp.Name == "step" {
			steps++
			if p := fmt.Sprintf("%x", sp.ParentSpanId); p != attempt {
				t.Errorf("a step is under %s, and the attempt is %s", p, attempt)
			}
		}
	}
	if attempt == "" || steps == 0 {
		t.Errorf("attempt %q and %d steps", attempt, steps)
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
