package cli

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// front is a folder with a manifest and a database, seen through the command line.
type front struct {
	testing.TB
	dir, url string
	done     string // a run that has ended
}

const frontManifest = `
[modules.m]
path = "m.wasm"

[jobs.free]
module = "m"
tenant = "none"
key = "{run.id}"

[schedules.nightly]
cron = "0 3 29 2 *"
tz = "UTC"
enqueue = [{ job = "free" }]
`

func newFront(t testing.TB, url string) *front {
	f := &front{TB: t, dir: t.TempDir(), url: url}
	if url == "" {
		f.url = "sqlite:" + filepath.Join(f.dir, "runner.db")
	}
	for name, text := range map[string]string{"jobs.toml": frontManifest, "m.wasm": "no module"} {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, errs := f.run("migrate", "up"); code != exitOK {
		t.Fatal(errs)
	}
	f.seed()
	return f
}

// run is one command.
func (f *front) run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(Params{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Getenv: func(name string) string {
			return map[string]string{"RUNNER_DATABASE_URL": f.url, "NO_COLOR": "1"}[name]
		},
	})
	return code, out.String(), errs.String()
}

// seed leaves runs, events and pauses behind that say hostile things, as far as the
// database takes them.
func (f *front) seed() {
	e := &env{Params: Params{Getenv: func(name string) string { return map[string]string{"RUNNER_DATABASE_URL": f.url}[name] }}}
	t := &target{cmd: &cobra.Command{}, file: filepath.Join(f.dir, "jobs.toml")}
	err := e.withStore(context.Background(), t, func(ctx context.Context, o opened) error {
		texts := abitest.HostileTexts()
		for i, name := range slices.Sorted(maps.Keys(texts)) {
			s := texts[name]
			if len(s) > 255 || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				continue
			}
			id := fmt.Sprintf("01970000-0000-7000-8000-%012x", i)
			res, err := o.store.Enqueue(ctx, []store.EnqueueParams{{
				ID: id, Job: s, Queue: s, Tenant: s, Key: s, Input: []byte("{}"), MaxAttempts: 1, EnqueuedBy: s, Traceparent: s,
			}})
			if err != nil || res[0].Deduped {
				return fmt.Errorf("%q: %+v, %w", s, res, err)
			}
			worker := "w" + s
			if err := o.store.Register(ctx, store.RegisterParams{ID: worker, Host: s, Queues: []string{s}, Lease: time.Hour}); err != nil {
				return err
			}
			claimed, err := o.store.Claim(ctx, store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: s, Limit: 1}}})
			if err != nil || len(claimed.Runs) != 1 {
				return fmt.Errorf("%q: %+v, %w", s, claimed, err)
			}
			failure := job.Failure{Code: "X_" + s, Message: s, Fix: s, Stack: s}
			ref := job.Ref{RunID: id, Worker: worker, Claim: claimed.Runs[0].Claims}
			if _, err := o.store.SaveSteps(ctx, []store.StepParams{{Ref: ref, Name: s, Kind: job.KindStep, Status: job.StepFailed, Error: &failure}}); err != nil {
				return err
			}
			if _, err := o.store.Settle(ctx, []store.SettleParams{{
				Ref: ref, Outcome: job.DeadLettered, To: job.Dead, Error: &failure, Progress: &job.Progress{Permille: 1, Note: s},
				Log: []job.LogLine{{Seq: 1, At: time.Now(), Level: s, Step: s, Text: s}},
			}}); err != nil {
				return err
			}
			if _, err := o.store.SetPause(ctx, store.PauseParams{Kind: store.PauseTenant, Name: s, By: s, Reason: s}); err != nil {
				return err
			}
			f.done = id
		}
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
}

// check says what is wrong with the way a command ended.
func check(code int, stdout, stderr string) string {
	switch {
	case strings.Contains(stderr, "defect of its own"), strings.Contains(stderr, job.CodeInternal):
		return "it broke"
	case code != exitOK && !regexp.MustCompile(`X_[A-Z_]+`).MatchString(stdout+stderr):
		return "it refuses without a code"
	case code < exitOK || code > exitCannot:
		return "its exit code is unknown"
	case len(stderr) > 4<<10:
		return fmt.Sprintf("it says %d bytes", len(stderr))
	}
	for _, word := range []string{"SQLSTATE", "INSERT INTO", "UPDATE runs", "violates", "sqlite3:", "goroutine "} {
		if strings.Contains(stderr, word) {
			return "it says " + word
		}
	}
	for _, text := range []string{stdout, stderr} {
		if strings.HasPrefix(stdout, "GRANT ") {
			continue // SQL is quoted for the database, not for a terminal
		}
		if i := strings.IndexFunc(text, drivesATerminal); i >= 0 {
			return fmt.Sprintf("it prints %.60q", text[i:])
		}
	}
	return ""
}

// drivesATerminal are characters that move, hide or reorder what others say.
func drivesATerminal(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || strings.ContainsRune("\u200b\u2060\ufeff\u2028\u2029", r)
}

// values are what a flag of a type is given. What the queue makes of each hostile
// text is another test's; here are those that a command could trip over.
func values(typ string) []string {
	switch typ {
	case "int", "int64":
		return []string{"0", "-1", "1001", "2147483648", "9223372036854775807", "99999999999999999999999", "NaN", "1e999", "1.5", ""}
	case "duration":
		return []string{"0s", "-1s", "1ns", "290y", "3650d", "3651d", "NaN", "1", ""}
	}
	texts := abitest.HostileTexts()
	out := []string{"", "0000-01-01T00:00:00Z", "9999-12-31T23:59:60Z", "292277026-06-01T12:30:00Z", "now", "{run.id}"}
	for _, name := range []string{"NUL", "invalid UTF-8", "right to left", "SQL", "LIKE", "terminal escapes", "path", "64 KiB"} {
		out = append(out, texts[name])
	}
	return out
}

// argumentsOf are what a command is called with, beside the flag that is tried.
func (f *front) argumentsOf(c *cobra.Command) []string {
	_, words, _ := strings.Cut(c.Use, " ")
	switch word, _, _ := strings.Cut(strings.Trim(words, "[]"), " "); strings.Trim(word, "…]") {
	case "ID":
		if c.Name() == "retry" && c.Parent().Name() == "outbox" {
			return nil
		}
		return []string{f.done}
	case "JOB":
		return []string{"free"}
	case "NAME":
		return []string{"nightly"}
	case "QUEUE", "TOPIC":
		return []string{"default"}
	case "FILE":
		return []string{filepath.Join(f.dir, "m.wasm")}
	}
	return nil
}

// skipped are commands that would go on, and flags that name what the test itself
// must be able to say.
var skipped = map[string]bool{"runner serve": true, "runner bench": true, "--file": true, "--database-url": true}

// onlyServer are commands about what a file has not.
var onlyServer = map[string]bool{"migrate grants": true, "migrate outbox": true, "outbox ls": true, "outbox audit": true, "outbox retry": true}

// Whatever a flag or an argument of a command is given, the command does it or
// refuses with a code, on either store alike, and what it prints is text.
func TestWhateverACommandIsGivenItAnswersInWords(t *testing.T) {
	stores := []*front{newFront(t, ""), newFront(t, pgtest.Database(t))}
	tried := 0
	each(newRoot(testEnv()), func(c *cobra.Command) {
		if c.HasSubCommands() || skipped[c.CommandPath()] {
			return
		}
		command := strings.Fields(c.CommandPath())[1:]
		try := func(what string, args func(*front) []string) {
			var codes [2]int
			for i, f := range stores {
				all := slices.Concat(command, args(f))
				if c.Flags().Lookup("file") != nil {
					all = slices.Insert(all, len(command), "-f", filepath.Join(f.dir, "jobs.toml"))
				}
				code, stdout, stderr := f.run(all...)
				codes[i] = code
				tried++
				if flaw := check(code, stdout, stderr); flaw != "" {
					t.Errorf("%s, %s (store %d): %s\n%.300q", c.CommandPath(), what, i, flaw, stderr)
				}
			}
			if codes[0] != codes[1] && !onlyServer[command[0]+" "+command[len(command)-1]] {
				t.Errorf("%s, %s: exit code %d on SQLite, %d on Postgres", c.CommandPath(), what, codes[0], codes[1])
			}
		}
		try("as it is", func(f *front) []string { return f.argumentsOf(c) })
		c.Flags().VisitAll(func(flag *pflag.Flag) {
			if flag.Value.Type() == "bool" || skipped["--"+flag.Name] {
				return
			}
			of := values(flag.Value.Type())
			if flag.Name == "input" || flag.Name == "data" {
				of = append(of, slices.Collect(maps.Values(abitest.HostileJSON()))...)
			}
			for _, v := range of {
				try(fmt.Sprintf("--%s=%.40q", flag.Name, v), func(f *front) []string { return append(f.argumentsOf(c), "--"+flag.Name+"="+v) })
			}
		})
		if strings.Contains(c.Use, " ") {
			for _, v := range values("string") {
				try(fmt.Sprintf("given %.40q", v), func(*front) []string { return []string{"--", v} })
			}
		}
	})
	if tried < 500 {
		t.Errorf("only %d commands were tried", tried)
	}
}

// Whatever a text is, its cell is one line that drives no terminal, and says what was
// to be read.
func FuzzCell(f *testing.F) {
	for _, s := range abitest.HostileTexts() {
		if len(s) < 1<<10 {
			f.Add(s)
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := cell(s)
		if strings.ContainsFunc(got, drivesATerminal) || strings.ContainsAny(got, "\n\t") || !utf8.ValidString(got) {
			t.Errorf("%q has the cell %q", s, got)
		}
		if plain := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0; plain && got != s {
			t.Errorf("%q has the cell %q", s, got)
		}
	})
}

// An instant is read as RFC 3339 has it, or refused as a mistake in the command.
func FuzzParseTime(f *testing.F) {
	for _, at := range abitest.HostileInstants() {
		f.Add(at.Format(time.RFC3339Nano))
	}
	f.Add("2026-03-01T09:00:00Z")
	f.Add("2026-03-01 09:00:00")
	f.Fuzz(func(t *testing.T, s string) {
		at, err := parseTime("run-at", s)
		if err != nil {
			if exitCode(err) != exitCannot || refusalOf(err).Code != codeUsage || len(refusalOf(err).Message) > 3<<10 {
				t.Errorf("%q is refused with %v", s, err)
			}
			return
		}
		if again, err := parseTime("run-at", at.Format(time.RFC3339Nano)); s != "" && (err != nil || !again.Equal(at)) {
			t.Errorf("%q is read as %s, and that as %s, %v", s, at, again, err)
		}
	})
}

// A bound of a listing is an instant or a time ago, or a mistake in the command.
func FuzzInstantOf(f *testing.F) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for _, s := range append(values("string"), append(values("duration"), "24h", "7d", "1d12h", "3650d", "106751d", "-1h", "0s", "2026-01-31T08:00:00Z")...) {
		if len(s) < 1<<10 {
			f.Add(s)
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := instantOf("--since", s, now)
		if err != nil {
			if exitCode(err) != exitCannot || refusalOf(err).Code != codeUsage {
				t.Errorf("%q is refused with %v", s, err)
			}
			return
		}
		if s == "" != at.IsZero() && !strings.HasPrefix(s, "0001-01-01") {
			t.Errorf("%q is read as %s", s, at)
		}
		if _, err := time.Parse(time.RFC3339, s); err != nil && at.After(now) {
			t.Errorf("%q is %s, after now", s, at)
		}
	})
}

// A line of events to come is an event, or says why it is none.
func FuzzReadEvent(f *testing.F) {
	for _, s := range abitest.HostileJSON() {
		if len(s) < 1<<10 {
			f.Add([]byte(s))
			f.Add([]byte(`{"topic":"t","data":` + s + `}`))
		}
	}
	f.Add([]byte(`{"after":"2h","topic":"approval","key":"o-1","tenant":"acme","data":true}`))
	f.Add([]byte(`{"after":"-2h","topic":"approval"}`))
	f.Add([]byte(`{"after":2,"topic":"approval","other":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := readEvent(bytes.TrimSpace(line))
		if err != nil {
			if err.Error() == "" {
				t.Errorf("%q is refused without a word", line)
			}
			return
		}
		if e.After < 0 || e.Event.Topic == "" {
			t.Errorf("%q is %+v", line, e)
		}
		// What else an event may not be is the queue's to say, with a code.
		if _, err := e.Event.Event(); err != nil && !strings.HasPrefix(refusalOf(err).Code, "X_") {
			t.Errorf("%q is refused with %v", line, err)
		}
	})
}

// Lines come in their order, each once, with their numbers.
func FuzzLines(f *testing.F) {
	f.Add([]byte("1\n\n {\"a\":2} \r\n3"))
	f.Add([]byte("\n\n\n"))
	f.Add([]byte("\x00\xff\n1"))
	f.Add(bytes.Repeat([]byte("1\n"), 2*linesBatch+1))
	f.Fuzz(func(t *testing.T, text []byte) {
		e := &env{Params: Params{Stdin: bytes.NewReader(text)}}
		var got []inputLine
		if _, err := e.lines("-", func(_ string, batch []inputLine) error {
			if len(batch) == 0 || len(batch) > linesBatch {
				t.Errorf("a batch of %d lines", len(batch))
			}
			got = append(got, batch...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		n := 0
		for i, line := range bytes.Split(text, []byte("\n")) {
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			if n == len(got) || got[n].number != i+1 || !bytes.Equal(got[n].text, line) {
				t.Fatalf("line %d of %q is not among %+v", i+1, text, got)
			}
			n++
		}
		if n != len(got) {
			t.Fatalf("%q has %d lines, and %d came", text, n, len(got))
		}
	})
}
