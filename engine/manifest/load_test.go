package manifest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

func TestLoadReadsEverySection(t *testing.T) {
	m, report := Load("testdata/ok/jobs.toml")
	if report != nil {
		t.Fatal(report)
	}
	j, err := m.Job("onboard-org")
	if err != nil {
		t.Fatal(err)
	}
	if j.Module != "onboard" || j.Handler != "onboard-org" || j.Timeout != 10*time.Minute || j.Retry.MaxDelay != 10*time.Minute {
		t.Errorf("job is %+v", j)
	}
	if q := m.Queues["mail"]; q.Workers != 20 || q.PerTenant != 5 || q.Rate.Limit != 50 {
		t.Errorf("queue is %+v", q)
	}
	if mod := m.Modules["onboard"]; mod.Memory != 64<<20 || mod.Allow.Env["REGION"] != "eu" {
		t.Errorf("module is %+v", mod)
	}
	if s := m.Schedules["nightly-digest"]; string(s.Enqueue[0].Input) != `{"kind":"nightly"}` || s.Zone.String() != "America/Bogota" {
		t.Errorf("schedule is %+v", s)
	}
}

func TestAnUnknownJobNamesTheClosestOne(t *testing.T) {
	m, report := Load("testdata/ok/jobs.toml")
	if report != nil {
		t.Fatal(report)
	}
	_, err := m.Job("onboard_org")
	if abi.CodeOf(err) != job.CodeUnknownJob {
		t.Fatalf("got %v", err)
	}
	if want := `X_JOB_UNKNOWN: no job is called "onboard_org" (did you mean onboard-org?)`; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestDefaults(t *testing.T) {
	dir := t.TempDir()
	m, report := Parse(filepath.Join(dir, "jobs.toml"), []byte(minimal))
	if report != nil {
		t.Fatal(report)
	}
	want := Runner{Database: "sqlite:" + filepath.Join(dir, "runner.db"), DataDir: filepath.Join(dir, ".runner"), Lease: 30 * time.Second, Drain: 25 * time.Second}
	if d := cmp.Diff(want, m.Runner); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]Queue{"default": {Name: "default", Workers: 100, AgeAfter: 10 * time.Minute}}, m.Queues); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]Module{"m": {Name: "m", Path: filepath.Join(dir, "m.wasm"), Memory: 128 << 20}}, m.Modules); d != "" {
		t.Error(d)
	}
	j := *m.Jobs["a"]
	j.Tenant, j.Key = Template{}, Template{}
	if d := cmp.Diff(Job{
		Name: "a", Module: "m", Handler: "a", Queue: "default", Timeout: 10 * time.Minute, StepTimeout: time.Minute,
		OnDeploy: Pin, Retention: 30 * day, Retry: job.DefaultRetry,
	}, j, cmp.AllowUnexported(Template{})); d != "" {
		t.Error(d)
	}
	if len(m.Digest) != 64 {
		t.Errorf("digest %q", m.Digest)
	}
}

const minimal = `
[modules.m]
path = "m.wasm"
[jobs.a]
module = "m"
tenant = "none"
key = "{run.id}"
`

func TestAnEmptyManifestDeclaresNothing(t *testing.T) {
	m, report := Parse("jobs.toml", nil)
	if report != nil || len(m.Jobs)+len(m.Modules)+len(m.Queues) > 0 {
		t.Errorf("%+v, %v", m, report)
	}
}

// Names that mean something to other languages' objects mean nothing here.
func TestEveryNameWithinTheAlphabetIsAllowed(t *testing.T) {
	for _, name := range []string{"constructor", "prototype", "valueof", "a", "0", "a.b-c_d", "none", "default", strings.Repeat("x", 100)} {
		text := minimal + "queue = \"" + name + "\"\n[queues.\"" + name + "\"]\nworkers = 7\n"
		m, report := Parse("jobs.toml", []byte(text))
		if report != nil {
			t.Errorf("%s: %v", name, report)
			continue
		}
		if m.Queues[name].Workers != 7 || len(m.Queues) != 1 {
			t.Errorf("%s: queues are %+v", name, m.Queues)
		}
	}
}

// Jobs, queues, modules and schedules have namespaces of their own.
func TestOneNameMayStandForOneThingOfEachKind(t *testing.T) {
	_, report := Parse("jobs.toml", []byte(`
[queues.digest]
[modules.digest]
path = "m.wasm"
[jobs.digest]
module = "digest"
queue = "digest"
tenant = "none"
key = "digest"
[schedules.digest]
cron = "0 3 * * *"
tz = "UTC"
enqueue = [{ job = "digest" }]
`))
	if report != nil {
		t.Error(report)
	}
}

func TestAShortTimeoutShortensTheDefaultStepTimeout(t *testing.T) {
	m, report := Parse("jobs.toml", []byte(minimal+"timeout = \"5s\"\n"))
	if report != nil || m.Jobs["a"].StepTimeout != 5*time.Second {
		t.Errorf("%v, %v", m, report)
	}
}

func TestProblemsThatAreFoundLaterHaveAPlace(t *testing.T) {
	m, report := Parse("dir/jobs.toml", []byte("modules.m.path = \"m.wasm\"\n[modules.\"a.b\"]\npath = \"n.wasm\"\n\n[modules.m.allow]\nhttp = []\n"))
	if report != nil {
		t.Fatal(report)
	}
	for _, c := range []struct {
		keys         []string
		key          string
		line, column int
	}{
		{[]string{"modules", "m", "path"}, "modules.m.path", 1, 18},
		{[]string{"modules", "m", "sha256"}, "modules.m.sha256", 1, 9},
		{[]string{"modules", "a.b", "path"}, `modules."a.b".path`, 3, 8},
		{[]string{"modules", "a.b", "memory"}, `modules."a.b".memory`, 2, 10},
		{[]string{"modules", "m", "allow", "http"}, "modules.m.allow.http", 6, 1},
		{[]string{"runner", "data_dir"}, "runner.data_dir", 0, 0},
	} {
		p := m.Problem("X_TEST", "message", "fix", c.keys...)
		want := Problem{File: "dir/jobs.toml", Line: c.line, Column: c.column, Code: "X_TEST", Key: c.key, Message: "message", Fix: "fix"}
		if d := cmp.Diff(want, p); d != "" {
			t.Error(d)
		}
	}
}

func TestFilesAreAllThatWasRead(t *testing.T) {
	m, report := Parse("testdata/refuse/jobs.toml", []byte(minimal+"input = \"schemas/order.json\"\n"))
	if report != nil {
		t.Fatal(report)
	}
	want := []string{"testdata/refuse/jobs.toml", "testdata/refuse/schemas/customer.json", "testdata/refuse/schemas/order.json"}
	if d := cmp.Diff(want, m.Files); d != "" {
		t.Error(d)
	}
}

func TestScheduledInputsBecomeJSON(t *testing.T) {
	m, report := Parse("jobs.toml", []byte(minimal+`
[schedules.s]
cron = "0 3 * * *"
tz = "Europe/Berlin"
enqueue = [
  { job = "a", input = { z = 1_000, a = [1.5, 0xff, true, "q\"<\u0000"], t = { "x.y" = 1e300 }, n = 9223372036854775807 } },
  { job = "a" },
]
`))
	if report != nil {
		t.Fatal(report)
	}
	s := m.Schedules["s"]
	if got, want := string(s.Enqueue[0].Input), `{"z":1000,"a":[1.5,255,true,"q\"<\u0000"],"t":{"x.y":1e+300},"n":9223372036854775807}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(s.Enqueue[1].Input); got != "{}" {
		t.Errorf("no input is %s", got)
	}
	from := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	if got, want := s.Next(from), time.Date(2026, 6, 1, 1, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("next is %s, want %s", got, want)
	}
}
