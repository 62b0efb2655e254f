package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
	"github.com/jobrunner/runner/engine/store/sqlite"
)

// StoreParams say which database to open and how.
type StoreParams struct {
	Database Database
	Create   bool // make a missing or empty one
	Logger   *slog.Logger
}

// OpenStore opens a database whose schema this build knows. A Postgres database
// is never created or migrated by it.
// Errors: those of the store's Open, each with what to do.
func OpenStore(ctx context.Context, p StoreParams) (store.Store, error) {
	if err := p.Database.checkFolder(); err != nil {
		return nil, err
	}
	if p.Database.Shared() {
		s, err := opened(postgres.Open(ctx, p.Database.postgres.config(p.Logger)))
		return s, p.Database.explain(ctx, err)
	}
	s, err := opened(sqlite.Open(ctx, sqlite.Config{Path: p.Database.Path, Create: p.Create, Logger: p.Logger}))
	return s, p.Database.explain(ctx, err)
}

// opened keeps a nil pointer to a store from becoming a store.Store that is not
// nil.
func opened[S store.Store](s S, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// explain completes what a store says: of a server that does not answer in time
// by a code, and of a schema that this build cannot use by the command that mends
// it, which a store does not know.
func (d Database) explain(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && abi.CodeOf(err) == "" {
		// The store's own patience ended, not the caller's.
		return &abi.Error{
			Code:    job.CodeDatabaseUnavailable,
			Message: fmt.Sprintf("%s does not answer: %v", d, err),
			Fix:     "check that the server is up and can be reached",
			Err:     err,
		}
	}
	var coded *abi.Error
	if !errors.As(err, &coded) || coded.Code != job.CodeDatabaseSchema || !strings.Contains(coded.Fix, "migrate up") {
		return err
	}
	return &abi.Error{Code: coded.Code, Message: coded.Message, Fix: "run: " + d.command("migrate up"), Err: err}
}

// command is a command line about d, without secrets.
func (d Database) command(name string) string {
	switch d.Source {
	case sourceFlag:
		return "runner " + name + " --database-url URL, with this URL"
	case EnvDatabase:
		return "runner " + name + " --database-url \"$" + EnvDatabase + "\""
	case sourceDefault:
		return "runner " + name
	}
	return "runner " + name + " -f " + d.Source
}

// openMemory opens a store that lives as long as it is open, on a clock of its own.
func openMemory(ctx context.Context, clock func() time.Time) (store.Store, error) {
	return opened(sqlite.Open(ctx, sqlite.Config{Path: sqlite.Memory, Create: true, Clock: clock}))
}

// NewMigrator answers what brings a database's schema up to date, making a
// missing SQLite file or Postgres schema. It does not connect.
func NewMigrator(db Database) (store.Migrator, error) {
	if err := db.checkFolder(); err != nil {
		return nil, err
	}
	if db.Shared() {
		return postgres.OpenMigrator(db.postgres.config(nil))
	}
	return sqlite.NewMigrator(sqlite.Config{Path: db.Path, Create: true})
}

// NewClient is a client for a process that works nothing itself. Without a
// manifest it reads and operates, but knows no job to enqueue.
func NewClient(s store.Store, m *manifest.Manifest) (*engine.Client, error) {
	return NewTracedClient(s, m, nil)
}

// NewTracedClient is a client whose enqueues have spans, unless traces is nil.
func NewTracedClient(s store.Store, m *manifest.Manifest, traces *Traces) (*engine.Client, error) {
	if m == nil {
		m = &manifest.Manifest{}
	}
	cfg := engine.ClientConfig{Store: s, Manifest: m}
	if traces != nil {
		cfg.Tracer = traces.tracing
	}
	return engine.NewClient(cfg)
}
