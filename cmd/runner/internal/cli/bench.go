package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/cmd/runner/internal/bench"
	"github.com/jobrunner/runner/host"
)

const (
	codeBenchDatabase = "X_BENCH_DATABASE"
	codeBenchGuest    = "X_BENCH_GUEST"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	database, guest, module, dir, cpuprofile string
	jobs                                     int
}

func newBench(e *env) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what this machine does",
		Long: `Measure the runner as it is served, on a durable database of its own:

  insert_per_s    runs inserted, in batches of 1,000
  work_per_s      runs worked off whose handler does nothing, 500 at a time
  steps_per_s     durable steps: five a run, 50 runs at a time
  latency_ms      p50 and p99 from the call that enqueues a single run on an idle server
                  to the first line that its handler logs

The database is a file in a temporary folder, which is removed afterwards. Its disk
decides much of the result: --dir puts it where yours is. With a postgres:// URL it is
a schema that does not exist yet, which is left there.

--guest noop measures with the smallest module there is; go with one that the Go SDK
makes, built with the go tool in a checkout of runner. --module measures any module
that has the handlers noop, steps (five steps) and hello (logs "started").`,
		Example: `  runner bench
  runner bench --guest go --jobs 5000 --dir /var/lib --json
  runner bench --database-url 'postgres://owner@db.example.com/bench?schema=bench1'
  runner bench --cpuprofile cpu.prof`,
		Args:    cobra.NoArgs,
		GroupID: groupTools,
	}
	e.jsonFlag(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.database, "database-url", "", "a database that does not exist yet (default a file in the temporary folder)")
	fl.IntVar(&f.jobs, "jobs", 20000, "runs to insert and work off")
	fl.StringVar(&f.guest, "guest", "noop", "noop or go")
	fl.StringVar(&f.module, "module", "", "measure with this .wasm file")
	fl.StringVar(&f.dir, "dir", "", "where to make the temporary folder (default the system's)")
	fl.StringVar(&f.cpuprofile, "cpuprofile", "", "write a CPU profile to this file")
	cmd.MarkFlagsMutuallyExclusive("guest", "module")
	e.complete(cmd, "guest", cobra.FixedCompletions([]string{"noop", "go"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, _ []string) error { return e.bench(ctx, f) })
	return cmd
}

func (e *env) bench(ctx context.Context, f benchFlags) error {
	if f.jobs < 1 || f.jobs > 10_000_000 {
		return usagef("a number from 1 to 10000000", "--jobs %d is none to measure with", f.jobs)
	}
	dir, err := os.MkdirTemp(f.dir, "runner-bench-")
	if err != nil {
		return &abi.Error{Code: codeFile, Message: fmt.Sprintf("cannot make a temporary folder: %v", err), Fix: "name a folder to write to with --dir", Err: err}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p := bench.Params{Dir: dir, Database: f.database, Jobs: f.jobs, Progress: func(what string) { _, _ = fmt.Fprintf(e.Stderr, "%s …\n", what) }}
	if err := newDatabase(ctx, f.database); err != nil {
		return err
	}
	if p.Guest, p.Module, err = benchGuest(ctx, f, dir); err != nil {
		return err
	}
	if f.cpuprofile != "" {
		out, err := os.Create(f.cpuprofile)
		if err != nil {
			return &abi.Error{Code: codeFile, Message: fmt.Sprintf("cannot write the profile: %v", err), Err: err}
		}
		defer func() { _ = out.Close() }()
		if err := pprof.StartCPUProfile(out); err != nil {
			return fmt.Errorf("start the profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	app.SpareCollections(e.Getenv) // as serve does
	r, err := bench.Run(ctx, p)
	if err != nil {
		return err
	}
	if e.json {
		return printJSON(e.Stdout, r)
	}
	t := table{head: []string{"MEASURE", "VALUE"}}
	t.row("inserted a second", fmt.Sprintf("%.0f", r.InsertPerS))
	t.row("worked off a second", fmt.Sprintf("%.0f", r.WorkPerS))
	t.row("durable steps a second", fmt.Sprintf("%.0f", r.StepsPerS))
	t.row("enqueue to handler, p50", fmt.Sprintf("%.2f ms", r.LatencyMS.P50))
	t.row("enqueue to handler, p99", fmt.Sprintf("%.2f ms", r.LatencyMS.P99))
	t.row("store, guest, runs", fmt.Sprintf("%s, %s, %d", r.Store, r.Guest, r.Jobs))
	t.print(e.Stdout, e.out, nil)
	return nil
}

// newDatabase refuses a database that is there: a benchmark fills it.
func newDatabase(ctx context.Context, url string) error {
	if url == "" {
		return nil
	}
	db, err := app.FindDatabase(app.DatabaseParams{Flag: url})
	if err != nil {
		return err
	}
	var there bool
	fix := "name a file that does not exist yet"
	if db.Shared() {
		m, err := app.NewMigrator(db)
		if err != nil {
			return err
		}
		version, err := m.Version(ctx)
		if err != nil {
			return err
		}
		there, fix = version > 0, "name a schema that does not exist yet, as in postgres://…/NAME?schema=bench1"
	} else {
		_, err := os.Stat(db.Path)
		there = err == nil
	}
	if there {
		return &abi.Error{Code: codeBenchDatabase, Message: db.String() + " exists, and a benchmark would fill it with runs", Fix: fix}
	}
	return nil
}

// benchGuest is the module to measure with, and what to call it.
func benchGuest(ctx context.Context, f benchFlags, dir string) (name string, wasm []byte, err error) {
	switch {
	case f.module != "":
		wasm, err = host.ReadModule(f.module)
		return filepath.Base(f.module), wasm, err
	case f.guest == "noop":
		wasm, err = bench.Guest()
		return f.guest, wasm, err
	case f.guest == "go":
		wasm, err = buildGoGuest(ctx, dir)
		return f.guest, wasm, err
	}
	return "", nil, usagef("noop or go", "--guest %q is not known", f.guest)
}

// goGuest is the package of the guest that the Go SDK makes.
const goGuest = "github.com/jobrunner/runner/cmd/runner/internal/bench/testdata/goguest"

func buildGoGuest(ctx context.Context, dir string) ([]byte, error) {
	out := filepath.Join(dir, "go.wasm")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", out, goGuest)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, &abi.Error{
			Code:    codeBenchGuest,
			Message: fmt.Sprintf("the Go guest cannot be built: %v\n%s", err, strings.TrimSpace(string(text))),
			Fix:     "run this in a checkout of runner with Go installed, or name a module with --module",
			Err:     err,
		}
	}
	return os.ReadFile(out)
}
