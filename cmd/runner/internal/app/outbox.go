package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
	pgoutbox "github.com/jobrunner/runner/engine/store/postgres/outbox"
	"github.com/jobrunner/runner/engine/trace"
)

// EnvOutbox names the environment variable with the database that an application
// stages runs in, where that is not the queue's.
const EnvOutbox = "RUNNER_OUTBOX_URL"

// FindOutbox is the database whose outbox p names: the flag, then the
// environment's outbox, then the database of the queue.
// Errors: X_DATABASE_URL_INVALID, also for a database that can have none.
func FindOutbox(p DatabaseParams, env string) (Database, error) {
	var d Database
	var err error
	if p.Flag == "" && env != "" {
		d, err = parseDatabase(env, "", EnvOutbox)
	} else {
		d, err = FindDatabase(p)
	}
	if err != nil {
		return Database{}, err
	}
	return d, d.checkOutbox()
}

// checkOutbox refuses a database that no application shares with us.
func (d Database) checkOutbox() error {
	if d.Shared() {
		return nil
	}
	return &abi.Error{
		Code:    CodeDatabaseURL,
		Message: fmt.Sprintf("%s of %s can have no outbox: the file is the runner's alone", d, d.Source),
		Fix:     "name the application's own Postgres database, as in postgres://USER@HOST/NAME",
	}
}

func (d Database) outbox(logger *slog.Logger) pgoutbox.Config {
	return pgoutbox.Config{
		URL: d.postgres.url, Schema: d.postgres.schema, Logger: logger,
		NoListen: d.postgres.pooling == postgres.PoolingTransaction,
	}
}

// OpenOutbox opens the outbox of a database, which has one that this build knows.
func OpenOutbox(ctx context.Context, d Database, logger *slog.Logger) (store.Outbox, error) {
	o, err := pgoutbox.Open(ctx, d.outbox(logger))
	if err != nil {
		return nil, err
	}
	return o, nil
}

// MigrateOutboxParams say where an outbox is to be, and who may use it.
type MigrateOutboxParams struct {
	Database  Database
	Enqueuers []string // roles that may stage runs
	Relays    []string // roles that may publish them
}

// MigrateOutboxResult is what was done.
type MigrateOutboxResult struct {
	Applied []int // versions
	Latest  int   // the one it has now
}

// MigrateOutbox installs or upgrades an outbox and grants its use.
func MigrateOutbox(ctx context.Context, p MigrateOutboxParams) (MigrateOutboxResult, error) {
	m, err := pgoutbox.OpenMigrator(p.Database.outbox(nil))
	if err != nil {
		return MigrateOutboxResult{}, err
	}
	roles := pgoutbox.GrantParams{Enqueuers: p.Enqueuers, Relays: p.Relays}
	named := len(p.Enqueuers)+len(p.Relays) > 0
	if named {
		if err := m.CheckRoles(ctx, roles); err != nil {
			return MigrateOutboxResult{}, err
		}
	}
	applied, err := m.Migrate(ctx)
	if err != nil {
		return MigrateOutboxResult{}, err
	}
	res := MigrateOutboxResult{Applied: applied, Latest: m.Latest()}
	if !named {
		return res, nil
	}
	return res, m.Grant(ctx, roles)
}

// relay publishes what an application stages, in a process that serves.
type relay struct {
	database Database
	outbox   store.Outbox
	relay    *outbox.Relay
}

// relayParams are what a relay works with.
type relayParams struct {
	URL      string // of --outbox-url
	Client   *engine.Client
	Registry *prometheus.Registry
	Logger   *slog.Logger
	Tracer   trace.Tracer
}

// sourceOutbox is who names the outbox of a server.
const sourceOutbox = "--outbox-url"

// openRelay opens the outbox and returns a relay that has not begun.
func openRelay(ctx context.Context, p relayParams) (r *relay, err error) {
	d, err := parseDatabase(p.URL, "", sourceOutbox)
	if err == nil {
		err = d.checkOutbox()
	}
	if err != nil {
		return nil, err
	}
	r = &relay{database: d}
	if r.outbox, err = OpenOutbox(ctx, d, p.Logger); err != nil {
		return nil, err
	}
	m, err := metrics.NewOutbox(p.Registry)
	if err == nil {
		r.relay, err = outbox.New(outbox.Config{Outbox: r.outbox, Queue: p.Client, Logger: p.Logger, Metrics: m, Tracer: p.Tracer})
	}
	if err != nil {
		return nil, errors.Join(err, r.outbox.Close())
	}
	return r, nil
}

// relayPatience bounds the wait for the batch under way; the engine's drain has
// had its own by then.
const relayPatience = 5 * time.Second

// close stops the relay and closes its outbox.
func (r *relay) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), relayPatience)
	defer cancel()
	return errors.Join(r.relay.Stop(ctx), r.outbox.Close())
}
