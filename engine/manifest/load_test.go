package manifest

import (
	"bytes"
	"fmt"
	"os"
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
	if d := cmp.Diff(map[string]Queue{"default": {Name: "default", Workers: 100}}, m.Queues); d != "" {
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

func TestUnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.toml")
	if err := os.WriteFile(big, bytes.Repeat([]byte("# filler\n"), maxBytes/9+1), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.toml"):         "the manifest does not exist",
		filepath.Join(dir, "none", "jobs.toml"): "the manifest does not exist",
		filepath.Join(big, "jobs.toml"):         "the manifest cannot be read: not a directory",
		dir:                                     "the manifest is a folder",
		big:                                     "the manifest is bigger than 1MiB",
		filepath.Join(dir, "\x00"):              "the manifest cannot be read: invalid argument",
		"/dev/null":                             "the manifest is not a regular file",
	} {
		_, report := Load(path)
		if report == nil || len(report.Problems) != 1 || report.Problems[0].Code != CodeFile || report.Problems[0].Message != want {
			t.Errorf("%q: %v, want %q", path, report, want)
		}
	}
	if _, report := Parse("jobs.toml", bytes.Repeat([]byte("#\n"), maxBytes)); report == nil || report.Problems[0].Message != "the manifest is bigger than 1MiB" {
		t.Errorf("%v", report)
	}
}

func TestLinksOutOfTheFolderAreRefused(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, at string) {
		t.Helper()
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "m.wasm"), "")
	write(filepath.Join(outside, "s.json"), `{"type":"object","title":"secret"}`)
	write(filepath.Join(dir, "real.wasm"), "")
	link(filepath.Join(outside, "m.wasm"), filepath.Join(dir, "file.wasm"))
	link(outside, filepath.Join(dir, "folder"))
	link(filepath.Join(outside, "s.json"), filepath.Join(dir, "s.json"))
	link("real.wasm", filepath.Join(dir, "inside.wasm"))
	write(filepath.Join(dir, "ref.json"), `{"$ref":"folder/s.json"}`)
	write(filepath.Join(dir, "jobs.toml"), `
[modules.file]
path = "file.wasm"
[modules.folder]
path = "folder/m.wasm"
[modules.inside]
path = "inside.wasm"
[modules.not-built-yet]
path = "bin/none.wasm"
[jobs.a]
module = "inside"
tenant = "none"
key = "a"
input = "s.json"
[jobs.b]
module = "inside"
tenant = "none"
key = "b"
input = "ref.json"
`)
	_, report := Load(filepath.Join(dir, "jobs.toml"))
	if report == nil {
		t.Fatal("accepted")
	}
	var got []string
	for _, p := range report.Problems {
		got = append(got, p.Key+": "+p.Message)
	}
	want := []string{
		`modules.file.path: modules.file.path leads out of the manifest's folder through a link; this is "file.wasm"`,
		`modules.folder.path: modules.folder.path leads out of the manifest's folder through a link; this is "folder/m.wasm"`,
		`jobs.a.input: jobs.a.input leads out of the manifest's folder through a link; this is "s.json"`,
		`jobs.b.input: jobs.b.input is no usable JSON Schema: ref.json: folder/s.json leads out of the manifest's folder`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// The manifest itself may be a link: its folder is where the link is.
	link(filepath.Join(dir, "jobs.toml"), filepath.Join(outside, "jobs.toml"))
	if _, report := Load(filepath.Join(outside, "jobs.toml")); report == nil || report.Problems[0].Code == CodeFile {
		t.Errorf("through a link: %v", report)
	}
}

func TestUnenforcedNamesWhatIsDeclaredAndNotKept(t *testing.T) {
	m, report := Load("testdata/ok/jobs.toml")
	if report != nil {
		t.Fatal(report)
	}
	var got []string
	for _, p := range m.Unenforced() {
		got = append(got, fmt.Sprintf("%d:%d %s %s", p.Line, p.Column, p.Code, p.Key))
	}
	want := []string{
		"9:1 X_FEATURE_UNAVAILABLE queues.mail.rate",
		"10:1 X_FEATURE_UNAVAILABLE queues.mail.per_tenant",
		"28:1 X_FEATURE_UNAVAILABLE jobs.onboard-org.concurrency",
		"40:12 X_FEATURE_UNAVAILABLE schedules.nightly-digest",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	m, report = Parse("jobs.toml", []byte(minimal+"compensates = true\n"))
	if report != nil || len(m.Unenforced()) != 1 || m.Unenforced()[0].Key != "jobs.a.compensates" {
		t.Errorf("%v, %v", m, report)
	}
	if m, _ := Parse("jobs.toml", []byte(minimal)); len(m.Unenforced()) != 0 {
		t.Errorf("%v", m.Unenforced())
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

// Any text is either a manifest or a report whose every problem has a place.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.toml")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, report := Parse("testdata/refuse/jobs.toml", data)
		if (m == nil) == (report == nil) {
			t.Fatalf("%v, %v", m, report)
		}
		if report == nil {
			for name, j := range m.Jobs {
				if _, ok := m.Queues[j.Queue]; !ok || name == "" || j.Timeout <= 0 || j.StepTimeout <= 0 || j.Retry.Attempts < 1 || m.Modules[j.Module].Name == "" {
					t.Fatalf("job %+v", j)
				}
			}
			return
		}
		last := Problem{}
		for _, p := range report.Problems {
			if p.Line < 1 || p.Column < 1 || p.Code == "" || p.Message == "" || p.Line < last.Line {
				t.Fatalf("%+v after %+v", p, last)
			}
			last = p
		}
		if len(report.Text()) == 0 || len(report.JSON()) < 10 || bytes.Count([]byte(report.GitHub()), []byte("\n")) != len(report.Problems) {
			t.Fatal("a rendering is not whole")
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, report := Load("testdata/ok/jobs.toml"); report != nil {
			b.Fatal(report)
		}
	}
}

// BenchmarkHostileFiles loads a megabyte each of what once took a minute, or
// all memory: none may cost more than a second.
func BenchmarkHostileFiles(b *testing.B) {
	fill := func(n int, line func(i int) string) string {
		var s strings.Builder
		for i := 0; s.Len() < n; i++ {
			s.WriteString(line(i))
		}
		return s.String()
	}
	const n = maxBytes - 1000
	for name, text := range map[string]string{
		"keys": "[runner]\n" + fill(n, func(i int) string { return fmt.Sprintf("k%d=1\n", i) }),
		"references": fill(n/2, func(i int) string { return fmt.Sprintf("[modules.m%d]\n", i) }) +
			fill(n/2, func(i int) string { return fmt.Sprintf("[jobs.j%d]\nmodule='x%d'\n", i, i) }),
		"dotted":    strings.Repeat("a.", n/2) + "b=1\n",
		"brackets":  "a=" + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "\n",
		"one line":  "[modules.m.allow]\nhttp=[" + strings.Repeat("'x',", n/4) + "]\n",
		"repeated":  fill(n, func(int) string { return "a=1\n" }),
		"scheduled": minimal + "[schedules.s]\ncron='* * * * *'\ntz='UTC'\nenqueue=[{job='a',input={" + fill(n-1000, func(i int) string { return fmt.Sprintf("k%d=1,", i) }) + "}}]\n",
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Parse("jobs.toml", []byte(text))
			}
		})
	}
}

func TestAReportIsBounded(t *testing.T) {
	_, report := Parse("jobs.toml", []byte(strings.Repeat("[queues.q]\n", 5000)))
	if report == nil || len(report.Problems) != maxProblems || report.More != 4999-maxProblems {
		t.Fatalf("%d problems and %d more", len(report.Problems), report.More)
	}
	if want := "4999 problems in jobs.toml\n"; !strings.HasSuffix(report.Text(), want) {
		t.Errorf("the text ends in %q", report.Text()[len(report.Text())-40:])
	}
}
