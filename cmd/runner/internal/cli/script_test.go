package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/jobrunner/runner/cmd/runner/internal/cli"
)

// TestMain makes this binary the runner itself when a script runs `runner`, so
// that scripts exercise whole processes: their exit codes, signals and kills.
func TestMain(m *testing.M) {
	testscript.Main(withModules{m}, map[string]func(){
		"runner": func() { os.Exit(cli.Main(cli.Process())) },
	})
}

// withModules builds the handlers that scripts run, once.
type withModules struct{ *testing.M }

func (m withModules) Run() int {
	dir, err := os.MkdirTemp("", "runner-modules-")
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := buildModules(dir); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	modules = dir
	return m.M.Run()
}

// modules is the folder of the built handlers; scripts see it as $MODULES.
var modules string

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                processCommands(),
		Setup: func(e *testscript.Env) error {
			e.Setenv("MODULES", modules)
			e.Setenv("DATA", filepath.Join(modules, "data")) // of scripts that may share compiled modules
			e.Setenv("NO_COLOR", "1")
			e.Setenv("RUNNER_DATABASE_URL", "")
			g := newGates()
			e.Defer(func() {
				g.server.CloseClientConnections()
				g.server.Close()
			})
			e.Values[gatesKey{}] = g
			e.Setenv("GATE", g.server.URL)
			e.Values[processesKey{}] = &processes{byName: map[string]*process{}}
			return nil
		},
	})
}
