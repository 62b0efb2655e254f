package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jobrunner/runner/cmd/runner/internal/cli"
)

var (
	firstManifest  = regexp.MustCompile("(?s)```toml\n(.*?)```")
	consoleExample = regexp.MustCompile("(?s)<!-- example: \\w+ -->\n```console\n\\$ runner ([^\n]*)\n(.*?)```")
)

// What the page on schedules says that a command prints, it prints for the page's
// manifest.
func TestExamplesOfTheSchedulesPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	jobs := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(jobs, firstManifest.FindSubmatch(page)[1], 0o644); err != nil {
		t.Fatal(err)
	}
	examples := consoleExample.FindAllStringSubmatch(string(page), -1)
	if len(examples) == 0 {
		t.Fatal("the page has no example")
	}
	for _, m := range examples {
		var out, errs bytes.Buffer
		code := cli.Main(cli.Params{
			Args: append(strings.Fields(m[1]), "-f", jobs), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
			Getenv: func(string) string { return "" },
		})
		if code != 0 || out.String() != m[2] {
			t.Errorf("runner %s: exit code %d\n%s%s\nthe page says:\n%s", m[1], code, out.String(), errs.String(), m[2])
		}
	}
}
