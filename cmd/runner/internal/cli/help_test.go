package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func testEnv() *env {
	return &env{Params: Params{Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}}
}

// each calls f for every command of ours.
func each(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, c := range cmd.Commands() {
		if c.Name() != "completion" && c.Name() != "help" {
			each(c, f)
		}
	}
}

func TestEveryCommandHasHelpWithAnExampleThatIsOne(t *testing.T) {
	each(newRoot(testEnv()), func(c *cobra.Command) {
		if c.Short == "" || c.Long == "" || c.Example == "" {
			t.Errorf("%s lacks help: short %q, long %q, example %q", c.CommandPath(), c.Short, c.Long, c.Example)
		}
		if !c.HasSubCommands() && !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("the example of %s does not call it: %s", c.CommandPath(), c.Example)
		}
		for line := range strings.Lines(c.Long + "\n" + c.Example) {
			if len([]rune(line)) > 92 {
				t.Errorf("help of %s is wider than a terminal: %q", c.CommandPath(), line)
			}
		}
		if c.RunE == nil {
			t.Errorf("%s does nothing", c.CommandPath())
		}
	})
}

func TestEveryListingHasJSON(t *testing.T) {
	found := 0
	each(newRoot(testEnv()), func(c *cobra.Command) {
		switch c.Name() {
		case "ls", "show", "status", "inspect", "bench", "version", "try", "enqueue":
			found++
			if c.Flags().Lookup("json") == nil {
				t.Errorf("%s has no --json", c.CommandPath())
			}
		}
	})
	if found < 8 {
		t.Errorf("only %d listings were looked at", found)
	}
}

func TestCommandThatDoesNotExistIsAUsageError(t *testing.T) {
	for _, args := range [][]string{{"jobs", "lss"}, {"jobz"}, {"migrate", "down"}, {"serve", "now"}, {"jobs", "ls", "--what"}} {
		var stderr strings.Builder
		code := Main(Params{Args: args, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &stderr, Getenv: func(string) string { return "" }})
		if code != exitCannot || !strings.Contains(stderr.String(), codeUsage) || !strings.Contains(stderr.String(), "to do: ") {
			t.Errorf("%v: %d %s", args, code, stderr.String())
		}
	}
}

func TestAPanicIsReportedWithoutAStack(t *testing.T) {
	var stderr strings.Builder
	e := testEnv()
	e.Stderr = &stderr
	code := e.fail(safely(func() error { panic("boom") }))
	if code != exitCannot || !strings.Contains(stderr.String(), "boom") || strings.Contains(stderr.String(), "goroutine") {
		t.Errorf("%d %s", code, stderr.String())
	}
}
