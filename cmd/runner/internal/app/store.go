package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/sqlite"
)

// StoreParams say which database to open and how.
type StoreParams struct {
	Database Database
	Create   bool // make a missing or empty one
	Logger   *slog.Logger
}

// OpenStore opens a database whose schema this build knows.
// Errors: those of the store's Open, each with what to do.
func OpenStore(ctx context.Context, p StoreParams) (store.Store, error) {
	if err := p.Database.checkFolder(); err != nil {
		return nil, err
	}
	return opened(sqlite.Open(ctx, sqlite.Config{Path: p.Database.Path, Create: p.Create, Logger: p.Logger}))
}

// opened keeps a nil *sqlite.Store from becoming a store.Store that is not nil.
func opened(s *sqlite.Store, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openMemory opens a store that lives as long as it is open, on a clock of its own.
func openMemory(ctx context.Context, clock func() time.Time) (store.Store, error) {
	return opened(sqlite.Open(ctx, sqlite.Config{Path: sqlite.Memory, Create: true, Clock: clock}))
}

// NewMigrator answers what brings a database's schema up to date, making a
// missing one.
func NewMigrator(db Database) (store.Migrator, error) {
	if err := db.checkFolder(); err != nil {
		return nil, err
	}
	return sqlite.NewMigrator(sqlite.Config{Path: db.Path, Create: true})
}

// NewClient is a client for a process that works nothing itself. Without a
// manifest it reads and operates, but knows no job to enqueue.
func NewClient(s store.Store, m *manifest.Manifest) (*engine.Client, error) {
	if m == nil {
		m = &manifest.Manifest{}
	}
	return engine.NewClient(engine.ClientConfig{Store: s, Manifest: m})
}
