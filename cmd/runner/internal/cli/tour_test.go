package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/cmd/runner/internal/otlptest"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

var writeTour = flag.Bool("tour.write", false, "write what the commands of docs/tour.md answer into the page, on SQLite")

const tourPage = "../../../../docs/tour.md"

var (
	tourBlock = regexp.MustCompile("(?ms)^(?:<!-- file: ([a-z/.]+) -->\n)?```(go|toml|json|console)\n(.*?)^```$")
	// fleeting is what is another each time: ids, instants, how long something took or has to go, what a build is called.
	fleeting = []struct {
		is *regexp.Regexp
		as string
	}{
		{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "DIGEST"},
		{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}(/[0-9]+)?`), "ID"},
		{regexp.MustCompile(`20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`), "TIME"},
		{regexp.MustCompile(`\+?([0-9]+m)?[0-9]+(\.[0-9]+)?(ms|µs|s)\b`), ""}, // less than a millisecond is not told,
		{regexp.MustCompile(`(?m)(^|[ \t])([0-9]+[smhd])+\b`), " "},           // +1h is when, on the clock of try
		{regexp.MustCompile(`(?m)^[0-9]+\b`), "N"},
		{regexp.MustCompile(`[ \t]+`), " "},
		{regexp.MustCompile(`(?m) $`), ""},
	}
)

func settled(text string) string {
	for _, f := range fleeting {
		text = f.is.ReplaceAllString(text, f.as)
	}
	return text
}

// The page of all features: its handlers are built, its manifest is served, each of its
// commands is typed into one shell, and answers what the page says.
func TestTheTour(t *testing.T) {
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) { walkTour(t, store) })
	}
}

func walkTour(t *testing.T, store string) {
	page, err := os.ReadFile(tourPage)
	if err != nil {
		t.Fatal(err)
	}
	collector := otlptest.Start(t)
	dir := t.TempDir()
	s := newShell(t, dir)
	if store == "postgres" {
		s.env = append(s.env, "RUNNER_DATABASE_URL="+pgtest.Database(t))
	}
	typed := 0
	said := tourBlock.ReplaceAllFunc(page, func(found []byte) []byte {
		m := tourBlock.FindSubmatch(found)
		name, language, text := string(m[1]), string(m[2]), string(m[3])
		if name != "" {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if language == "go" {
				build(t, filepath.Dir(path), filepath.Join(dir, "shop.wasm"))
			}
			return found
		}
		if language != "console" || t.Failed() {
			return found
		}
		s.start()
		var b strings.Builder
		b.WriteString("```console\n")
		for _, example := range strings.Split("\n"+text, "\n$ ")[1:] {
			command, want, _ := strings.Cut(strings.TrimRight(example, "\n")+"\n", "\n")
			if strings.HasPrefix(command, "kill ") {
				awaitTourSpans(collector) // a drain waits no longer for what it sends than it may
			}
			got := s.run(strings.ReplaceAll(command, "http://collector:4318", collector.URL))
			if typed++; !*writeTour && !shows(got, want) {
				t.Errorf("$ %s\nit says:\n%s\nthe page says:\n%s", command, got, want)
			}
			if strings.HasSuffix(want, "…\n") {
				got = want
			}
			fmt.Fprintf(&b, "$ %s\n%s", command, got)
		}
		b.WriteString("```")
		return []byte(b.String())
	})
	if !t.Failed() {
		s.toldAsThePageSays()
	}
	s.close()
	if typed < 40 && !t.Failed() {
		t.Errorf("%d commands were typed", typed)
	}
	if *writeTour && store == "sqlite" && !t.Failed() {
		if err := os.WriteFile(tourPage, said, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitTourSpans waits until those of the trace that the page names have come.
func awaitTourSpans(collector *otlptest.Collector) {
	for _, name := range []string{"enqueue report", "attempt report"} {
		for !slices.ContainsFunc(collector.Named(name), func(s otlptest.Span) bool { return s.Trace == ourTrace }) {
			time.Sleep(pollEvery)
		}
	}
}

// toldAsThePageSays holds what manifest.md says of on_settled against the tour: its
// manifest is a part of that one, and its input has the members of one that was told.
func (s *shell) toldAsThePageSays() {
	s.Helper()
	page, err := os.ReadFile("../../../../docs/manifest.md")
	if err != nil {
		s.Fatal(err)
	}
	tour, err := os.ReadFile(filepath.Join(s.dir, "jobs.toml"))
	if err != nil {
		s.Fatal(err)
	}
	for _, section := range []string{"steps", "on_settled"} {
		_, text, _ := strings.Cut(string(page), "\n### "+section+"\n")
		block := tourBlock.FindStringSubmatch(text)
		if block == nil || block[2] != "toml" {
			s.Fatalf("manifest.md has no manifest under %s", section)
		}
		for table := range strings.SplitSeq(strings.TrimSpace(block[3]), "\n\n") {
			if !strings.HasPrefix(table, "[modules.") && !strings.Contains(string(tour), table+"\n") {
				s.Errorf("manifest.md, %s: the tour does not run\n%s", section, table)
			}
		}
		if section == "steps" {
			continue
		}
		members := func(text string) []string {
			var of map[string]json.RawMessage
			if err := json.Unmarshal([]byte(text), &of); err != nil {
				s.Fatalf("%v: %s", err, text)
			}
			return slices.Sorted(maps.Keys(of))
		}
		said := members(tourBlock.FindAllStringSubmatch(text, 2)[1][3])
		var told struct{ Input json.RawMessage }
		if err := json.Unmarshal([]byte(s.run(`runner jobs show "$end" --json`)), &told); err != nil {
			s.Fatal(err)
		}
		if got := members(string(told.Input)); !slices.Equal(got, said) {
			s.Errorf("a job was told %v, the page says %v", got, said)
		}
	}
}

// shows reports whether a command said what the page has of it: all, or what comes
// before and after a line of dots.
func shows(got, want string) bool {
	got, want = settled(got), settled(want)
	first, last, dots := strings.Cut(want, "…\n")
	if !dots {
		return got == want
	}
	return len(got) >= len(first)+len(last) && strings.HasPrefix(got, first) && strings.HasSuffix(got, last)
}

// build makes the module of a folder with one file, as a user of the SDK does.
func build(t *testing.T, dir, out string) {
	t.Helper()
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mod", "init", "example.com/shop"},
		{"mod", "edit", "-require=github.com/jobrunner/runner@v0.0.0", "-replace=github.com/jobrunner/runner=" + root},
		{"build", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, "."},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text)
		}
	}
}

// shell is one that a reader has open while reading.
type shell struct {
	*testing.T
	dir string
	env []string
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// newShell makes this binary the commands that a page needs.
func newShell(t *testing.T, dir string) *shell {
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"runner", "curl"} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := &shell{T: t, dir: dir, env: append(os.Environ(),
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "NO_COLOR=1", "RUNNER_DATABASE_URL=",
		"OTEL_EXPORTER_OTLP_TIMEOUT=3600000", "OTEL_BSP_EXPORT_TIMEOUT=3600000", "OTEL_BSP_SCHEDULE_DELAY=10")}
	t.Cleanup(s.close)
	return s
}

func (s *shell) start() {
	s.Helper()
	if s.cmd != nil {
		return
	}
	s.cmd = exec.Command("sh")
	s.cmd.Dir, s.cmd.Env = s.dir, s.env
	out, w, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr, s.out = w, w, bufio.NewReader(out)
	if s.in, err = s.cmd.StdinPipe(); err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	_ = w.Close()
}

const spoken = "-- said --"

// run types a command, and answers what it says on both of its streams.
func (s *shell) run(command string) string {
	s.Helper()
	s.Log("$ " + command) // with -v, where one hangs
	if _, err := fmt.Fprintf(s.in, "%s\necho '%s'\n", command, spoken); err != nil {
		s.Fatal(err)
	}
	var said bytes.Buffer
	for {
		line, err := s.out.ReadString('\n')
		if before, ok := strings.CutSuffix(line, spoken+"\n"); ok {
			said.WriteString(before)
			return said.String()
		}
		said.WriteString(line)
		if err != nil {
			s.Fatalf("$ %s\nthe shell is gone, after\n%s", command, said.String())
		}
	}
}

// close ends the shell and what it started.
func (s *shell) close() {
	if s.cmd == nil {
		return
	}
	_, _ = io.WriteString(s.in, "kill -9 $serve 2>/dev/null\nexit\n")
	_ = s.in.Close()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// curl is as much of it as pages need: curl -s URL.
func curl() {
	res, err := http.Get(os.Args[len(os.Args)-1])
	if err == nil {
		_, err = io.Copy(os.Stdout, res.Body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
