package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/sqltext"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// latest is the schema this build knows: the number of its migrations.
var latest = len(migrations)

// migrations are the texts of migrations/NNN_name.sql; version n is at n-1.
var migrations = sqltext.Migrations(migrationFiles, "queue")

// Migrator brings a schema up to date. It connects for each call and keeps
// nothing open in between. Its role has to own the schema, or be allowed to
// create one.
type Migrator struct {
	cfg    Config
	conn   *pgxpool.Config
	target string
}

var _ store.Migrator = (*Migrator)(nil)

// OpenMigrator returns the migrator of cfg's schema. It does not connect.
func OpenMigrator(cfg Config) (*Migrator, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	pcfg, err := cfg.parse()
	if err != nil {
		return nil, err
	}
	return &Migrator{cfg: cfg, conn: pcfg, target: target(pcfg)}, nil
}

// Latest implements store.Migrator.
func (m *Migrator) Latest() int { return latest }

// Version implements store.Migrator.
func (m *Migrator) Version(ctx context.Context) (int, error) {
	f, err := lookAt(ctx, m.conn.ConnConfig, m.cfg.dialect())
	if err != nil {
		return 0, m.translate(err)
	}
	return f.schema, acceptServer(f, m.target)
}

// Migrate implements store.Migrator. Each version is one transaction. Another
// migration under way is waited for.
func (m *Migrator) Migrate(ctx context.Context) (applied []int, err error) {
	applied, err = m.migrate(ctx)
	return applied, m.translate(err)
}

func (m *Migrator) migrate(ctx context.Context) (applied []int, err error) {
	d := m.cfg.dialect()
	f, err := lookAt(ctx, m.conn.ConnConfig, d)
	if err != nil {
		return nil, err
	}
	if err := acceptServer(f, m.target); err != nil {
		return nil, err
	}
	if f.replica || f.readOnly {
		return nil, &abi.Error{
			Code:    job.CodeDatabaseReadOnly,
			Message: fmt.Sprintf("%s cannot be written: it is a replica, or set to read-only", m.target),
			Fix:     "name the primary server",
		}
	}
	cfg := m.conn.ConnConfig.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	for try := 1; ; {
		version, err := m.step(ctx, c, d)
		// The functions that make partitions wait for no lock for long, not even
		// for one that an autovacuum has on a catalog.
		if sqlState(err) == lockNotAvailable && try < tries {
			if err := pause(ctx, try); err != nil {
				return applied, err
			}
			try++
			continue
		}
		if err != nil {
			return applied, err
		}
		if version == 0 {
			return applied, nil
		}
		applied = append(applied, version)
	}
}

// step applies the next version in a transaction, and returns it; 0 if there is
// none.
func (m *Migrator) step(ctx context.Context, c *pgx.Conn, d dialect) (version int, err error) {
	tx, err := c.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after a commit it does nothing
	for _, text := range []string{
		// The lock ends with the transaction, so it works through a pooler.
		`SELECT pg_advisory_xact_lock(hashtextextended('runner.migrate.' || {schema_literal}, 0))`,
		// A schema that someone made for this role needs no right to create one.
		`DO $do$ BEGIN
			IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = {schema_literal}) THEN CREATE SCHEMA {schema}; END IF;
		END $do$`,
		`CREATE TABLE IF NOT EXISTS {schema}.schema_version (
			version    integer     NOT NULL PRIMARY KEY,
			applied_at timestamptz NOT NULL DEFAULT now()
		)`,
	} {
		if _, err := tx.Exec(ctx, d.fill(text)); err != nil {
			return 0, err
		}
	}
	var have int
	if err := tx.QueryRow(ctx, d.fill(`SELECT coalesce(max(version), 0) FROM {schema}.schema_version`)).Scan(&have); err != nil {
		return 0, err
	}
	if have > latest {
		return 0, errNewer(m.cfg.Schema, m.target, have)
	}
	if have == latest {
		return 0, nil
	}
	version = have + 1
	if _, err := tx.Exec(ctx, d.fill(migrations[version-1])); err != nil {
		if sqlState(err) == checkViolation {
			return 0, m.errForged(version, err)
		}
		return 0, fmt.Errorf("migration %d: %w", version, err)
	}
	if _, err := tx.Exec(ctx, d.fill(`INSERT INTO {schema}.schema_version (version) VALUES (`+strconv.Itoa(version)+`)`)); err != nil {
		return 0, err
	}
	return version, tx.Commit(ctx)
}

// translate gives errors their codes as a Store does.
func (m *Migrator) translate(err error) error {
	s := &Store{cfg: m.cfg, target: m.target}
	return s.translate(err, false)
}

// checkViolation is an SQLSTATE.
const checkViolation = "23514"

// errForged refuses a migration whose checks a row does not pass: no build wrote it.
func (m *Migrator) errForged(version int, err error) error {
	table, constraint := "", ""
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		table, constraint = pg.TableName, pg.ConstraintName
	}
	return &abi.Error{
		Code: job.CodeRowStatusUnknown,
		Message: fmt.Sprintf("migration %d: a row of the table %s, of the schema %s of %s, is in a state, or of a kind, that no build of the runner writes (%s); nothing was migrated",
			version, table, m.cfg.Schema, m.target, constraint),
		Fix: "look at the words of that column with `select distinct`, mend or delete the row, and migrate again",
		Err: err,
	}
}

func errNewer(schema, target string, version int) error {
	return &abi.Error{
		Code:    job.CodeDatabaseSchema,
		Message: fmt.Sprintf("the schema %s of %s is version %d, and this build knows %d", schema, target, version, latest),
		Fix:     "upgrade this runner to the version that migrated the database",
	}
}
