package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/jobrunner/runner/cmd/runner/internal/cli"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// TestMain makes this binary the runner itself when a script runs `runner`, so
// that scripts exercise whole processes: their exit codes, signals and kills.
func TestMain(m *testing.M) {
	testscript.Main(withModules{m}, map[string]func(){
		"runner": func() {
			cli.BePatient()
			os.Exit(cli.Main(cli.Process()))
		},
		"curl": curl,
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
	cli.BePatient()
	return pgtest.Main(m.M)
}

// modules is the folder of the built handlers; scripts see it as $MODULES.
var modules string

// Those that need no database, or are about what only a file can do.
func TestScripts(t *testing.T) { runScripts(t, "testdata", "sqlite") }

// What the command line promises of any store.
func TestScriptsOnEitherStore(t *testing.T) {
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) { runScripts(t, "testdata/either", store) })
	}
}

// Many processes on one database.
func TestFleetScripts(t *testing.T) { runScripts(t, "testdata/fleet", "postgres") }

// runScripts runs the scripts of dir. On Postgres each has an empty database of
// its own, which RUNNER_DATABASE_URL names; the conditions [sqlite] and
// [postgres] tell which it is.
func runScripts(t *testing.T, dir, store string) {
	files, err := filepath.Glob(dir + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", dir, err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                processCommands(),
		Condition: func(name string) (bool, error) {
			switch name {
			case "sqlite", "postgres":
				return name == store, nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("MODULES", modules)
			e.Setenv("DATA", filepath.Join(modules, "data")) // of scripts that may share compiled modules
			e.Setenv("NO_COLOR", "1")
			e.Setenv("RUNNER_DATABASE_URL", "")
			if store == "postgres" {
				e.Setenv("RUNNER_DATABASE_URL", pgtest.Database(e.T().(testing.TB)))
			}
			g := newGates()
			e.Defer(func() {
				g.server.CloseClientConnections()
				g.server.Close()
			})
			e.Values[gatesKey{}] = g
			e.Setenv("GATE", g.server.URL)
			e.Values[serverKey{}] = new(*pgtest.Server)
			e.Values[processesKey{}] = &processes{byName: map[string]*process{}}
			return nil
		},
	})
}
