package cli_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	spans "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/cmd/runner/internal/cli"
	"github.com/jobrunner/runner/cmd/runner/internal/otlptest"
	"github.com/jobrunner/runner/engine/job"
)

const (
	ourTrace = "0af7651916cd43dd8448eb211c80319c"
	ourSpan  = "b7ad6b7169203331"
	ourOwn   = "00-" + ourTrace + "-" + ourSpan + "-01"
)

const approvalJobs = `
[runner]
data_dir = %q
[modules.approval]
path = "approval.wasm"
[jobs.fulfil-order]
module = "approval"
tenant = "none"
key = "order:{id}"
[jobs.ship-parcel]
module = "approval"
tenant = "none"
key = "{run.id}"
`

// traced is a folder with a manifest, and a command line in it that has been
// started by a program that traces.
type traced struct {
	*testing.T
	jobs string
	env  map[string]string
}

func newTraced(t *testing.T) *traced {
	dir := t.TempDir()
	c := &traced{T: t, jobs: filepath.Join(dir, "jobs.toml"), env: map[string]string{"TRACEPARENT": ourOwn}}
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000") // for a collector that is slow, as the machine may be
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "3600000")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	wasm, err := os.ReadFile(filepath.Join(modules, "approval.wasm"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "approval.wasm"), wasm, 0o644)
	}
	if err == nil {
		err = os.WriteFile(c.jobs, fmt.Appendf(nil, approvalJobs, filepath.Join(modules, "data")), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.runner("migrate", "up")
	return c
}

// set is for what the sender of spans reads by itself, too.
func (c *traced) set(name, value string) {
	c.Setenv(name, value)
	c.env[name] = value
}

func (c *traced) runner(args ...string) (stdout, stderr string) {
	c.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(cli.Params{
		Args: append(args, "-f", c.jobs), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Getenv: func(name string) string { return c.env[name] },
	})
	if code != 0 {
		c.Fatalf("runner %v: exit code %d\n%s%s", args, code, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String()), errs.String()
}

// What a collector is sent of a run that a command enqueued, that waited for an
// event, and that invoked children. (TR2)
func TestACommandsRunIsTracedWithItsWaitAndItsChildren(t *testing.T) {
	c := newTraced(t)
	collector := otlptest.Start(t)
	c.set("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	id, _ := c.runner("enqueue", "fulfil-order", "--input", `{"id":"o-1","parcels":["a","b"]}`)
	if n := len(collector.Named("enqueue fulfil-order")); n != 1 {
		t.Fatalf("%d spans of the enqueue have come when the command has ended", n)
	}
	s, err := app.StartServer(t.Context(), app.ServerConfig{Manifest: c.jobs, Getenv: os.Getenv, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for {
		run, err := s.Client().Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if run.State == job.Suspended {
			break // it waits for its answer
		}
	}
	c.runner("events", "publish", "approval", "--key", "o-1", "--data", `{"approved":true,"by":"ann"}`)
	if run, err := s.Client().Wait(t.Context(), id); err != nil || run.State != job.Done {
		t.Fatal(run.State, err)
	}
	// A drain sends what is left, and waits no longer for it than it may.
	for len(collector.Named("attempt ship-parcel")) < 2 || len(collector.Named("attempt fulfil-order")) < 3 || len(collector.Named("wait")) < 1 || len(collector.Named("invoke")) < 1 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}

	for _, sp := range collector.All() {
		if sp.Trace != ourTrace {
			t.Errorf("%s is of trace %s", sp.Name, sp.Trace)
		}
	}
	enqueue := collector.Named("enqueue fulfil-order")[0]
	if enqueue.Parent != ourSpan || enqueue.Kind != spans.Span_SPAN_KIND_PRODUCER || enqueue.Attr("runner.run") != id {
		t.Errorf("the enqueue is %+v", enqueue)
	}
	attempts := map[string]bool{}
	for _, a := range collector.Named("attempt fulfil-order") {
		attempts[a.ID] = true
		if a.Parent != enqueue.ID {
			t.Errorf("an attempt is under %s, and the enqueue is %s", a.Parent, enqueue.ID)
		}
	}
	waits := collector.Named("wait")
	if len(waits) != 1 || waits[0].Parent != enqueue.ID || waits[0].Attr("runner.run") != id || waits[0].Attr("runner.step") != "answer" ||
		waits[0].EndTimeUnixNano < waits[0].StartTimeUnixNano {
		t.Errorf("the waits are %+v, beside attempts under %s", waits, enqueue.ID)
	}
	invokes := collector.Named("invoke")
	if len(invokes) != 1 || !attempts[invokes[0].Parent] || invokes[0].Attr("runner.runs") != "2" || invokes[0].Kind != spans.Span_SPAN_KIND_PRODUCER {
		t.Fatalf("the invokes are %+v", invokes)
	}
	children := collector.Named("attempt ship-parcel")
	for _, child := range children {
		if child.Parent != invokes[0].ID {
			t.Errorf("a child's attempt is under %s, and the invoke is %s", child.Parent, invokes[0].ID)
		}
	}
	if len(children) != 2 || len(attempts) < 3 || !collector.Service("runner") {
		t.Errorf("%d attempts of children, %d of the run", len(children), len(attempts))
	}
}

func TestTheRunsOfABatchAreUnderOneSpan(t *testing.T) {
	c := newTraced(t)
	collector := otlptest.Start(t)
	c.set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.URL+"/v1/traces")
	lines := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(lines, []byte("{\"id\":\"a\"}\n{\"id\":\"b\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.runner("enqueue", "fulfil-order", "--input-lines", lines)
	got := collector.All()
	if len(got) != 1 || got[0].Name != "enqueue" || got[0].Parent != ourSpan || got[0].Attr("runner.runs") != "2" {
		t.Fatalf("sent %+v", got)
	}
	listed, _ := c.runner("jobs", "ls", "--json")
	ids := regexp.MustCompile(`"id": "([^"]+)"`).FindAllStringSubmatch(listed, -1)
	if len(ids) != 2 {
		t.Fatalf("listed %s", listed)
	}
	for _, id := range ids {
		if shown, _ := c.runner("jobs", "show", id[1], "--json"); !strings.Contains(shown, `"traceparent": "00-`+ourTrace+"-"+got[0].ID+`-01"`) {
			t.Errorf("not under %s:\n%s", got[0].ID, shown)
		}
	}
}

// A trace that cannot be had, or sent, is no reason not to enqueue.
func TestAnEnqueueDoesNotDependOnItsSpan(t *testing.T) {
	away := otlptest.Start(t)
	away.Stop()
	for name, v := range map[string]struct {
		env  map[string]string
		says string // on stderr
		own  bool   // the run is under the caller's span itself
	}{
		"no traces are wanted":   {nil, "", true},
		"they are switched off":  {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": away.URL, "OTEL_SDK_DISABLED": "true"}, "", true},
		"another protocol":       {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": away.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "no span is sent: X_INVALID", true},
		"the collector is away":  {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": strings.Replace(away.URL, "://", "://u:hunter2@", 1)}, "the span was not sent: ", false},
		"the sampler drops them": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": away.URL, "OTEL_TRACES_SAMPLER": "always_off"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTraced(t)
			for k, value := range v.env {
				c.set(k, value)
			}
			id, stderr := c.runner("enqueue", "fulfil-order", "--input", `{"id":"o"}`)
			if (v.says == "") != (stderr == "") || !strings.Contains(stderr, v.says) || strings.Contains(stderr, "hunter2") {
				t.Errorf("it says %q, want %q", stderr, v.says)
			}
			shown, _ := c.runner("jobs", "show", id, "--json")
			if got := strings.Contains(shown, `"traceparent": "`+ourOwn+`"`); got != v.own || !strings.Contains(shown, `"traceparent": "00-`+ourTrace) {
				t.Errorf("under the caller's span itself: %v, want %v\n%s", got, v.own, shown)
			}
		})
	}
}
