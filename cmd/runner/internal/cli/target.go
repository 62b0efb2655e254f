package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
)

// defaultManifest is where a manifest is looked for.
const defaultManifest = "jobs.toml"

// target is which manifest and which database a command is about.
type target struct {
	cmd      *cobra.Command
	file     string
	database string
}

// manifestFlag adds -f.
func (e *env) manifestFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", defaultManifest, "the manifest")
	_ = cmd.MarkFlagFilename("file", "toml")
}

// targetFlags adds -f and --database-url.
func (e *env) targetFlags(cmd *cobra.Command) *target {
	t := &target{cmd: cmd}
	e.manifestFlag(cmd, &t.file)
	cmd.Flags().StringVar(&t.database, "database-url", "", "the database, as in sqlite:runner.db or postgres://USER@HOST/NAME (default: $"+app.EnvDatabase+", then the manifest's)")
	return t
}

// manifest is the manifest if there is one. A command about runs needs none
// when a database was named; if none was, it says so.
func (e *env) manifest(t *target) (*manifest.Manifest, error) {
	named := t.database != "" || e.Getenv(app.EnvDatabase) != ""
	if _, err := os.Stat(t.file); errors.Is(err, fs.ErrNotExist) && named && !t.cmd.Flags().Changed("file") {
		return nil, nil
	}
	m, report := manifest.Load(t.file)
	return m, report.Err()
}

// database is the one that t, the environment or the manifest names, and the
// manifest if there is one.
func (e *env) database(t *target) (app.Database, *manifest.Manifest, error) {
	m, err := e.manifest(t)
	if err != nil {
		return app.Database{}, nil, err
	}
	db, err := app.FindDatabase(app.DatabaseParams{Flag: t.database, Env: e.Getenv(app.EnvDatabase), Manifest: m})
	return db, m, err
}

// opened is a database that a command works on.
type opened struct {
	manifest *manifest.Manifest // nil when there is none
	store    store.Store
	client   *engine.Client
}

// withStore opens the database of t, which must exist, for the time of fn.
func (e *env) withStore(ctx context.Context, t *target, fn func(context.Context, opened) error) error {
	return e.withTracedStore(ctx, t, nil, fn)
}

// tracePatience is how long a command waits for its spans to be sent. It has done by
// then what it was to do.
var tracePatience = 2 * time.Second

// withTraces is withStore for a command whose enqueues have spans, if the
// environment asks for traces. A trace that cannot be had is no reason not to
// enqueue: what stands in the environment may be meant for other programs.
func (e *env) withTraces(ctx context.Context, t *target, fn func(context.Context, opened) error) error {
	traces, err := app.OpenTraces(ctx, e.Getenv)
	if err != nil {
		e.note("no span is sent: %v", err)
	}
	err = e.withTracedStore(ctx, t, traces, fn)
	if lost := traces.Close(tracePatience); lost != nil {
		e.note("the span was not sent: %v", lost)
	}
	return err
}

func (e *env) withTracedStore(ctx context.Context, t *target, traces *app.Traces, fn func(context.Context, opened) error) error {
	db, m, err := e.database(t)
	if err != nil {
		return err
	}
	s, err := app.OpenStore(ctx, app.StoreParams{Database: db})
	if err != nil {
		return err
	}
	client, err := app.NewTracedClient(s, m, traces)
	if err == nil {
		err = fn(ctx, opened{manifest: m, store: s, client: client})
	}
	return errors.Join(err, s.Close())
}
