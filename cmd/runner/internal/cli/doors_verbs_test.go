package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// A filter of a verb for many runs names those of which it is true to the byte, and
// never others: whatever the text is.
func TestAFilterOfManyNamesNoOthers(t *testing.T) {
	texts := abitest.HostileTexts()
	names := slices.Sorted(maps.Keys(texts))
	for _, f := range []*front{newFront(t, ""), newFront(t, pgtest.Database(t))} {
		for i, name := range names {
			s := texts[name]
			var want []string
			if len(s) <= 255 && utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
				want = []string{fmt.Sprintf("01970000-0000-7000-8000-%012x", i)} // as it is sown
			}
			for flag, value := range map[string]string{"job": s, "queue": s, "tenant": s, "code": "X_" + s} {
				code, stdout, stderr := f.run("jobs", "retry", "-f", filepath.Join(f.dir, "jobs.toml"), "--state", "dead", "--"+flag+"="+value, "--dry-run", "--json")
				var got bulkView
				if code == exitOK {
					if err := json.Unmarshal([]byte(stdout), &got); err != nil {
						t.Fatal(err)
					}
				}
				if code != exitOK || !slices.Equal(got.IDs, want) && len(got.IDs)+len(want) > 0 || got.Remaining+got.Blocked > 0 {
					t.Errorf("--%s, %s: exit code %d, %.300s %.300s", flag, name, code, stdout, stderr)
				}
				if want == nil || flag == "tenant" {
					continue
				}
				// What goes on from the page is said in words that a shell would take for these.
				code, stdout, stderr = f.run("jobs", "ls", "-f", filepath.Join(f.dir, "jobs.toml"), "--"+flag+"="+value, "--limit", "1")
				if flaw := check(code, stdout, stderr); flaw != "" {
					t.Errorf("--%s, %s: %s\n%.300q", flag, name, flaw, stderr)
				}
				if says := goesOn.FindStringSubmatch(stderr); says == nil {
					t.Errorf("--%s, %s: it does not say how to go on: %q", flag, name, stderr)
				} else if strings.IndexFunc(value, drivesATerminal) >= 0 || strings.ContainsAny(value, "\n\t") {
					continue // said as it can be printed
				} else if words, err := exec.Command("sh", "-c", "printf '%s\\0' "+says[1]).Output(); err != nil || !slices.Contains(strings.Split(string(words), "\x00"), value) {
					t.Errorf("--%s, %s: %q is %q, %v", flag, name, says[1], words, err)
				}
			}
		}
		for _, args := range [][]string{
			{"--limit", "0"}, {"--limit=-1"}, {"--limit", "1001"}, {"--job="}, {"--tenant="}, {"--id="}, {"--code="}, {"--parent="}, {"--queue="}, {"--since="}, {"--until="}, {"--state="},
			{"--since", "yesterday"}, {"--since=-1h"}, {"--until", "0000-01-01"},
		} {
			for _, verb := range []string{"retry", "delete"} {
				all := append([]string{"jobs", verb, "-f", filepath.Join(f.dir, "jobs.toml"), "--state", "dead"}, args...)
				if code, stdout, stderr := f.run(all...); code == exitOK || !strings.Contains(stderr, "X_") {
					t.Errorf("%v: exit code %d, %s%s", all, code, stdout, stderr)
				}
			}
		}
		// Nothing was done: every run is there still.
		_, stdout, _ := f.run("jobs", "ls", "-f", filepath.Join(f.dir, "jobs.toml"), "--state", "dead", "--json")
		if n := strings.Count(stdout, `"state":"dead"`) + strings.Count(stdout, `"state": "dead"`); n < 20 {
			t.Errorf("%d runs are dead still", n)
		}
	}
}

var goesOn = regexp.MustCompile(`more: (.*)`)

var refusedWith = regexp.MustCompile(`X_[A-Z_]+`)

// What the command publishes is refused with the code that the Go client has for it,
// or it is published.
func TestTheCommandPublishesWhatTheClientWould(t *testing.T) {
	f := newFront(t, "")
	try := func(what string, e engine.Event, args ...string) {
		t.Helper()
		want := ""
		if _, err := e.Event(); err != nil {
			want = abi.CodeOf(err)
		} else if e.ID != "" {
			want = job.CodeIDInvalid // no hostile text is an id
		}
		all := append([]string{"events", "publish", "-f", filepath.Join(f.dir, "jobs.toml")}, args...)
		all = append(all, "--", e.Topic)
		code, stdout, stderr := f.run(all...)
		if flaw := check(code, stdout, stderr); flaw != "" {
			t.Errorf("%s: %s\n%.300q", what, flaw, stderr)
		}
		if got := refusedWith.FindString(stderr); got != want || (code == exitOK) != (want == "") {
			t.Errorf("%s: exit code %d and %q, and the client refuses with %q\n%.300q", what, code, got, want, stderr)
		}
	}
	texts := abitest.HostileTexts()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		s := texts[name]
		try("topic, "+name, engine.Event{Topic: s})
		try("key, "+name, engine.Event{Topic: "t", Key: s}, "--key="+s)
		try("tenant, "+name, engine.Event{Topic: "t", Tenant: s}, "--tenant="+s)
		try("by, "+name, engine.Event{Topic: "t", By: s}, "--by="+s)
		try("id, "+name, engine.Event{Topic: "t", ID: s}, "--id="+s)
	}
	payloads := abitest.HostileJSON()
	for _, name := range slices.Sorted(maps.Keys(payloads)) {
		try("data, "+name, engine.Event{Topic: "t", Payload: []byte(payloads[name])}, "--data="+payloads[name])
	}
	large := filepath.Join(f.dir, "large.json")
	if err := os.WriteFile(large, []byte(payloads["1 MiB and a byte"]), 0o600); err != nil {
		t.Fatal(err)
	}
	try("data, of a file", engine.Event{Topic: "t", Payload: []byte(payloads["1 MiB and a byte"])}, "--data=@"+large)
}

// What the command enqueues is refused with the code that the Go client has for it,
// or is a run that has all of it, to the byte.
func TestTheCommandEnqueuesWhatTheClientWould(t *testing.T) {
	f, other := newFront(t, ""), newFront(t, "")
	enter := func(f *front, do func(ctx context.Context, o opened) error) {
		e := &env{Params: Params{Getenv: func(name string) string { return map[string]string{"RUNNER_DATABASE_URL": f.url}[name] }}}
		if err := e.withStore(context.Background(), &target{cmd: &cobra.Command{}, file: filepath.Join(f.dir, "jobs.toml")}, do); err != nil {
			t.Fatal(err)
		}
	}
	enter(other, func(ctx context.Context, client opened) error {
		enter(f, func(_ context.Context, kept opened) error {
			try := func(what string, r engine.Request, args ...string) {
				t.Helper()
				_, err := client.client.Enqueue(ctx, r)
				want := abi.CodeOf(err)
				all := append([]string{"enqueue", "-f", filepath.Join(f.dir, "jobs.toml")}, args...)
				code, stdout, stderr := f.run(append(all, "--", r.Job)...)
				if flaw := check(code, stdout, stderr); flaw != "" {
					t.Errorf("%s: %s\n%.300q", what, flaw, stderr)
				}
				if got := refusedWith.FindString(stderr); got != want && !(got == codeUsage && want != "") || (code == exitOK) != (want == "") {
					t.Errorf("%s: exit code %d and %q, and the client refuses with %q\n%.300q", what, code, got, want, stderr)
				}
				if code != exitOK || err != nil {
					return
				}
				run, err := kept.store.Get(ctx, strings.TrimSpace(stdout))
				if err != nil || r.Input != nil && string(run.Input) != string(r.Input) || r.Key != "" && run.Key != r.Key || run.Tenant != r.Tenant || r.EnqueuedBy != "" && run.EnqueuedBy != r.EnqueuedBy ||
					r.Priority != nil && run.Priority != *r.Priority || r.MaxAttempts != 0 && run.MaxAttempts != r.MaxAttempts || !r.RunAt.IsZero() && !run.RunAt.Equal(r.RunAt.Truncate(time.Millisecond)) ||
					r.Delay != 0 && run.RunAt.Sub(run.CreatedAt) != r.Delay.Truncate(time.Millisecond) && r.Delay >= time.Millisecond {
					t.Errorf("%s: the run is %.300q, %v", what, fmt.Sprintf("%+v", run), err)
				}
			}
			texts := abitest.HostileTexts()
			for _, name := range slices.Sorted(maps.Keys(texts)) {
				s := texts[name]
				try("job, "+name, engine.Request{Job: s})
				try("key, "+name, engine.Request{Job: "free", Key: s}, "--key="+s)
				try("tenant, "+name, engine.Request{Job: "free", Tenant: s}, "--tenant="+s)
				try("by, "+name, engine.Request{Job: "free", EnqueuedBy: s}, "--by="+s)
			}
			inputs := abitest.HostileJSON()
			for _, name := range slices.Sorted(maps.Keys(inputs)) {
				try("input, "+name, engine.Request{Job: "free", Input: []byte(inputs[name])}, "--input="+inputs[name])
			}
			for _, n := range abitest.HostileNumbers() {
				p := int(n)
				try(fmt.Sprint("priority ", n), engine.Request{Job: "free", Priority: &p}, fmt.Sprint("--priority=", n))
				if n != 0 { // which the command refuses, and the client takes for the job's own
					try(fmt.Sprint("attempts ", n), engine.Request{Job: "free", MaxAttempts: p}, fmt.Sprint("--attempts=", n))
				}
			}
			for _, at := range abitest.HostileInstants() {
				if y := at.Year(); y >= 0 && y <= 9999 {
					try(fmt.Sprint("run-at ", at), engine.Request{Job: "free", RunAt: at}, "--run-at="+at.Format(time.RFC3339Nano))
				}
			}
			return nil
		})
		return nil
	})
}
