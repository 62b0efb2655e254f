package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/hub"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Store keeps runs in a schema of a Postgres database. It is safe for
// concurrent use, by any number of processes.
type Store struct {
	cfg    Config
	target string // the database, for messages
	pool   *pgxpool.Pool
	pooled bool // a transaction pooler stands in between
	text   []string
	claims *claims
	behind behindServed
	hub    *hub.Hub
	listen *listener // nil: wakes of other processes are left to polling
	notes  *notifier
	weeks  weekly
	bounds store.StatsBounds
	once   sync.Once

	onlyPublishes atomic.Bool // the role may publish, but not write events itself
}

var _ store.Store = (*Store)(nil)

// oldest is the oldest server that is supported.
const oldest = 140000

// Open connects to a database whose schema this build knows. It needs one
// connection to succeed; later ones are made as they are needed.
//
// Errors, all of them *abi.Error: X_DATABASE_UNAVAILABLE, X_DATABASE_MISSING,
// X_DATABASE_SCHEMA (none, older or newer), X_DATABASE_READONLY (a replica),
// X_DATABASE_DENIED (the role may not use the schema); X_INVALID for the Config.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	pcfg, err := cfg.parse()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, target: target(pcfg), text: cfg.dialect().texts(), hub: hub.New(), claims: newClaims(), bounds: store.DefaultStatsBounds()}
	facts, err := s.look(ctx, pcfg.ConnConfig)
	if err != nil {
		return nil, s.translate(err, false)
	}
	if err := s.accept(facts); err != nil {
		return nil, err
	}
	s.pooled = cfg.Pooling == PoolingTransaction || cfg.Pooling == PoolingAuto && facts.pooled
	s.configure(pcfg)
	if s.pool, err = pgxpool.NewWithConfig(ctx, pcfg); err != nil {
		return nil, s.translate(err, false)
	}
	s.notes = newNotifier(s, facts.mute)
	switch {
	case cfg.NoListen:
	case facts.mute:
		cfg.Logger.Warn("the role may not notify: new work of other processes is found by polling, and theirs of ours",
			"database", s.target, "fix", "grant execute on function pg_notify(text, text) to it")
	case s.pooled:
		cfg.Logger.Warn("a transaction pooler stands before the database: new work of other processes is found by polling",
			"database", s.target, "fix", "to be told at once, give the runner a URL that leads to the server itself")
	default:
		s.listen = newListener(s, pcfg.ConnConfig)
	}
	return s, nil
}

// configure sets how the pool's connections run statements.
func (s *Store) configure(p *pgxpool.Config) {
	p.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		s.cfg.refresh(c)
		return nil
	}
	if s.pooled {
		// Nothing may be kept on a server's session: statements are sent whole.
		p.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		p.AfterConnect = func(_ context.Context, c *pgx.Conn) error {
			useArrays(c.TypeMap())
			return nil
		}
		return
	}
	p.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	p.ConnConfig.StatementCacheCapacity = 256
	// Plans are made once, when the tables may still be small, and kept: they
	// must be those that suit large ones.
	settings := "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;" +
		" SET jit = off; SET plan_cache_mode = force_generic_plan; SET lock_timeout = '1s'" // see on
	if s.cfg.StatementTimeout > 0 {
		settings += "; SET statement_timeout = " + strconv.FormatInt(s.cfg.StatementTimeout.Milliseconds(), 10)
	}
	p.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		useArrays(c.TypeMap())
		_, err := c.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol)
		return err
	}
}

// facts are what a database says of itself.
type facts struct {
	version  int
	replica  bool
	readOnly bool
	encoding string
	pooled   bool
	mute     bool // the role may not notify
	schema   int  // its version; 0 is none
	found    bool // the schema is there
}

// look asks over a connection of its own. Nothing of it depends on the schema.
func (s *Store) look(ctx context.Context, cfg *pgx.ConnConfig) (facts, error) {
	return lookAt(ctx, cfg, s.cfg.dialect())
}

func lookAt(ctx context.Context, cfg *pgx.ConnConfig, d dialect) (f facts, err error) {
	cfg = cfg.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return f, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	var pid uint32
	var readOnly string
	err = c.QueryRow(ctx, d.fill(`SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
		current_setting('default_transaction_read_only'), current_setting('server_encoding'), pg_backend_pid(),
		NOT has_function_privilege('pg_catalog.pg_notify(text, text)', 'EXECUTE'),
		EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = {schema_literal} AND c.relname = 'schema_version')`)).
		Scan(&f.version, &f.replica, &readOnly, &f.encoding, &pid, &f.mute, &f.found)
	if err != nil {
		return f, err
	}
	f.readOnly = readOnly == "on"
	// A pooler hands out a process id of its own making.
	f.pooled = pid != c.PgConn().PID()
	if f.found {
		err = c.QueryRow(ctx, d.fill(`SELECT coalesce(max(version), 0) FROM {schema}.schema_version`)).Scan(&f.schema)
	}
	return f, err
}

// accept refuses a database that this build cannot work with.
func (s *Store) accept(f facts) error {
	if err := acceptServer(f, s.target); err != nil {
		return err
	}
	switch {
	case f.replica || f.readOnly:
		return &abi.Error{
			Code:    job.CodeDatabaseReadOnly,
			Message: fmt.Sprintf("%s cannot be written: it is a replica, or set to read-only", s.target),
			Fix:     "name the primary server, or several hosts with target_session_attrs=read-write in the URL",
		}
	case !f.found:
		return &abi.Error{
			Code:    job.CodeDatabaseSchema,
			Message: fmt.Sprintf("%s has no schema %s", s.target, s.cfg.Schema),
			Fix:     "run `runner migrate up`",
		}
	case f.schema > latest:
		return errNewer(s.cfg.Schema, s.target, f.schema)
	case f.schema < latest:
		return &abi.Error{
			Code:    job.CodeDatabaseSchema,
			Message: fmt.Sprintf("the schema %s of %s is version %d, and this build needs %d", s.cfg.Schema, s.target, f.schema, latest),
			Fix:     "run `runner migrate up`",
		}
	}
	return nil
}

func acceptServer(f facts, target string) error {
	if f.version < oldest {
		return &abi.Error{
			Code:    job.CodeDatabaseUnavailable,
			Message: fmt.Sprintf("%s is Postgres %d, and 14 is the oldest that is supported", target, f.version/10000),
			Fix:     "upgrade the server",
		}
	}
	if f.encoding != "UTF8" {
		return &abi.Error{
			Code:    job.CodeDatabaseUnavailable,
			Message: fmt.Sprintf("%s is encoded in %s, and the runner's texts are UTF-8", target, f.encoding),
			Fix:     "create a database with ENCODING 'UTF8' TEMPLATE template0",
		}
	}
	return nil
}

// Name implements store.Store.
func (s *Store) Name() string { return "postgres" }

// Close implements store.Store.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.notes.close()
		if s.listen != nil {
			s.listen.close()
		}
		s.hub.Close()
		s.pool.Close()
	})
	return nil
}
