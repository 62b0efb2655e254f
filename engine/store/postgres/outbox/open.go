package outbox

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// DB is the outbox of one database, as a relay and an operator use it. It is
// safe for concurrent use; any number of processes may have one open.
type DB struct {
	cfg    Config
	at     where
	pool   *pgxpool.Pool
	text   map[string]string
	floor  floor
	listen *listener
	once   sync.Once
}

var _ store.Outbox = (*DB)(nil)

// oldest is the oldest server that is supported.
const oldest = 140000

// Open connects to a database that has an outbox this build knows.
//
// Errors, all of them *abi.Error: X_DATABASE_UNAVAILABLE, X_DATABASE_MISSING,
// X_DATABASE_SCHEMA (no outbox, or an older or newer one), X_DATABASE_READONLY,
// X_DATABASE_DENIED; X_INVALID for the Config.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	pcfg, err := cfg.parse()
	if err != nil {
		return nil, err
	}
	dial := dialect{schema: cfg.Schema, now: cfg.now}
	d := &DB{cfg: cfg, at: where{schema: cfg.Schema, target: target(pcfg)}, text: dial.texts()}
	f, err := look(ctx, pcfg.ConnConfig, dial)
	if err == nil {
		err = d.at.accept(f)
	}
	if err != nil {
		return nil, d.at.translate(err, false)
	}
	pcfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		d.cfg.refresh(c)
		return nil
	}
	if d.pool, err = pgxpool.NewWithConfig(ctx, pcfg); err != nil {
		return nil, d.at.translate(err, false)
	}
	d.listen = newListener(d, pcfg.ConnConfig, dial.channel())
	if f.pooled && !cfg.NoListen {
		// LISTEN would stay with a session that the application has next.
		d.cfg.NoListen = true
		d.listen.warn()
	}
	return d, nil
}

// Close implements store.Outbox.
func (d *DB) Close() error {
	d.once.Do(func() {
		d.listen.close()
		d.pool.Close()
	})
	return nil
}

// facts are what a database says of itself.
type facts struct {
	version  int
	replica  bool
	readOnly bool
	pooled   bool // a pooler stands in between
	found    bool // the outbox is there
	schema   int  // its version; 0 is none
}

// look asks over a connection of its own. Nothing of it depends on the schema.
func look(ctx context.Context, cfg *pgx.ConnConfig, d dialect) (f facts, err error) {
	c, err := connect(ctx, cfg)
	if err != nil {
		return f, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	var readOnly string
	var pid uint32
	err = c.QueryRow(ctx, d.fill(`SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
		current_setting('default_transaction_read_only'), pg_backend_pid(),
		EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = {schema_literal} AND c.relname = 'outbox_version')`)).
		Scan(&f.version, &f.replica, &readOnly, &pid, &f.found)
	if err != nil {
		return f, err
	}
	f.readOnly = readOnly == "on"
	// A pooler hands out a process id of its own making.
	f.pooled = pid != c.PgConn().PID()
	if f.found {
		err = c.QueryRow(ctx, d.fill(`SELECT coalesce(max(version), 0) FROM {schema}.outbox_version`)).Scan(&f.schema)
	}
	return f, err
}

// connect opens a connection that prepares nothing.
func connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	cfg = cfg.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return pgx.ConnectConfig(ctx, cfg)
}

// acceptServer refuses a server that cannot have an outbox.
func (w where) acceptServer(f facts) error {
	switch {
	case f.version < oldest:
		return &abi.Error{
			Code:    job.CodeDatabaseUnavailable,
			Message: fmt.Sprintf("%s is Postgres %d, and 14 is the oldest that is supported", w.target, f.version/10000),
			Fix:     "upgrade the server",
		}
	case f.replica || f.readOnly:
		return &abi.Error{
			Code:    job.CodeDatabaseReadOnly,
			Message: fmt.Sprintf("%s cannot be written: it is a replica, or set to read-only", w.target),
			Fix:     "name the primary server, or several hosts with target_session_attrs=read-write in the URL",
		}
	}
	return nil
}

// accept refuses a database that this build cannot relay from.
func (w where) accept(f facts) error {
	if err := w.acceptServer(f); err != nil {
		return err
	}
	switch {
	case !f.found || f.schema == 0:
		return w.missing()
	case f.schema > latest:
		return w.newer(f.schema)
	case f.schema < latest:
		return &abi.Error{
			Code:    job.CodeDatabaseSchema,
			Message: fmt.Sprintf("the outbox in schema %s of %s is version %d, and this build needs %d", w.schema, w.target, f.schema, latest),
			Fix:     fixMigrate,
		}
	}
	return nil
}

func (w where) missing() error {
	return &abi.Error{
		Code:    job.CodeDatabaseSchema,
		Message: fmt.Sprintf("the schema %s of %s has no outbox", w.schema, w.target),
		Fix:     fixMigrate,
	}
}

func (w where) newer(version int) error {
	return &abi.Error{
		Code:    job.CodeDatabaseSchema,
		Message: fmt.Sprintf("the outbox in schema %s of %s is version %d, and this build knows %d", w.schema, w.target, version, latest),
		Fix:     "upgrade this runner to the version that migrated the database",
	}
}
