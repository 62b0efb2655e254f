package outbox

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/sqltext"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the texts of migrations/NNN_name.sql; version n is at n-1.
var migrations = sqltext.Migrations(migrationFiles, "outbox")

// latest is the version this build knows: the number of its migrations.
var latest = len(migrations)

// Migrator installs and upgrades an outbox. It connects for each call and keeps
// nothing open in between. Its role becomes the owner, as whom enqueue runs: it
// has to own the schema, or be allowed to create one.
type Migrator struct {
	conn *pgxpool.Config
	at   where
	dial dialect
}

var _ store.Migrator = (*Migrator)(nil)

// OpenMigrator returns the migrator of cfg's outbox. It does not connect.
func OpenMigrator(cfg Config) (*Migrator, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	pcfg, err := cfg.parse()
	if err != nil {
		return nil, err
	}
	return &Migrator{conn: pcfg, at: where{schema: cfg.Schema, target: target(pcfg)}, dial: dialect{schema: cfg.Schema, now: cfg.now}}, nil
}

// Target names the database, without credentials.
func (m *Migrator) Target() string { return m.at.target }

// Latest implements store.Migrator.
func (m *Migrator) Latest() int { return latest }

// Version implements store.Migrator.
func (m *Migrator) Version(ctx context.Context) (int, error) {
	f, err := look(ctx, m.conn.ConnConfig, m.dial)
	if err != nil {
		return 0, m.at.translate(err, false)
	}
	return f.schema, nil
}

// Migrate implements store.Migrator. Each version is one transaction. Another
// migration under way is waited for.
func (m *Migrator) Migrate(ctx context.Context) (applied []int, err error) {
	f, err := look(ctx, m.conn.ConnConfig, m.dial)
	if err == nil {
		err = m.at.acceptServer(f)
	}
	if err == nil {
		err = m.connected(ctx, func(c *pgx.Conn) error {
			for {
				version, err := m.step(ctx, c)
				if version == 0 || err != nil {
					return err
				}
				applied = append(applied, version)
			}
		})
	}
	return applied, m.at.translate(err, false)
}

func (m *Migrator) connected(ctx context.Context, f func(c *pgx.Conn) error) error {
	c, err := connect(ctx, m.conn.ConnConfig)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	return f(c)
}

// step applies the next version in a transaction, and returns it; 0 if there is
// none.
func (m *Migrator) step(ctx context.Context, c *pgx.Conn) (version int, err error) {
	tx, err := c.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after a commit it does nothing
	for _, text := range []string{
		// The lock ends with the transaction, so it works through a pooler.
		`SELECT pg_advisory_xact_lock(hashtextextended('runner.migrate.outbox.' || {schema_literal}, 0))`,
		// A schema that someone made for this role needs no right to create one.
		`DO $do$ BEGIN
			IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = {schema_literal}) THEN CREATE SCHEMA {schema}; END IF;
		END $do$`,
		`CREATE TABLE IF NOT EXISTS {schema}.outbox_version (
			version    integer     NOT NULL PRIMARY KEY,
			applied_at timestamptz NOT NULL DEFAULT now()
		)`,
	} {
		if _, err := tx.Exec(ctx, m.dial.fill(text)); err != nil {
			return 0, err
		}
	}
	var have int
	if err := tx.QueryRow(ctx, m.dial.fill(`SELECT coalesce(max(version), 0) FROM {schema}.outbox_version`)).Scan(&have); err != nil {
		return 0, err
	}
	if have > latest {
		return 0, m.at.newer(have)
	}
	if have == latest {
		return 0, nil
	}
	version = have + 1
	if _, err := tx.Exec(ctx, m.dial.fill(migrations[version-1])); err != nil {
		return 0, fmt.Errorf("migration %d: %w", version, err)
	}
	if _, err := tx.Exec(ctx, m.dial.fill(`INSERT INTO {schema}.outbox_version (version) VALUES (`+strconv.Itoa(version)+`)`)); err != nil {
		return 0, err
	}
	return version, tx.Commit(ctx)
}

// GrantParams name roles that exist.
type GrantParams struct {
	Enqueuers []string // may call enqueue and publish, and nothing else
	Relays    []string // may claim, settle, list, stage again and purge rows, and add or alter none
}

// CheckRoles reports the first of roles that there is not, before anything is done.
// Errors: X_INVALID.
func (m *Migrator) CheckRoles(ctx context.Context, p GrantParams) error {
	err := m.connected(ctx, func(c *pgx.Conn) error {
		for _, role := range slices.Concat(p.Enqueuers, p.Relays) {
			if err := m.checkRole(ctx, c, role); err != nil {
				return err
			}
		}
		return nil
	})
	return m.at.translate(err, false)
}

// Grant gives roles what they need and no more. It may be repeated.
// Errors: X_INVALID for a role there is not.
func (m *Migrator) Grant(ctx context.Context, p GrantParams) error {
	err := m.connected(ctx, func(c *pgx.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			for _, role := range p.Enqueuers {
				if err := m.checkRole(ctx, tx, role); err != nil {
					return err
				}
				if err := m.grantEnqueuer(ctx, tx, role); err != nil {
					return err
				}
			}
			for _, role := range p.Relays {
				if err := m.checkRole(ctx, tx, role); err != nil {
					return err
				}
				if err := m.grantRelay(ctx, tx, role); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return m.at.translate(err, false)
}

// relayGrants let a role deal with rows, but not change what they ask for.
const relayGrants = `
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.outbox_version, {schema}.outbox TO {role};
GRANT UPDATE (state, claims, claimed_by, leased_until, settled_at, run_id, code, reason) ON {schema}.outbox TO {role};
GRANT DELETE ON {schema}.outbox TO {role};
GRANT SELECT, INSERT, DELETE ON {schema}.outbox_audit TO {role}`

// enqueuerGrants let a role stage runs and events, for whatever tenant it says, and
// see nothing of what is staged. {function} is one after the other.
const enqueuerGrants = `
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT EXECUTE ON FUNCTION {function} TO {role}`

func (m *Migrator) grantRelay(ctx context.Context, tx pgx.Tx, role string) error {
	_, err := tx.Exec(ctx, m.grant(relayGrants, role, ""))
	return err
}

func (m *Migrator) grantEnqueuer(ctx context.Context, tx pgx.Tx, role string) error {
	rows, err := tx.Query(ctx, m.dial.fill(`SELECT p.oid::regprocedure::text FROM pg_catalog.pg_proc p
		JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = {schema_literal} AND p.proname IN ('enqueue', 'publish')`))
	if err != nil {
		return err
	}
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(functions) == 0 {
		return m.at.missing()
	}
	for _, f := range functions {
		if _, err := tx.Exec(ctx, m.grant(enqueuerGrants, role, f)); err != nil {
			return err
		}
	}
	return nil
}

func (m *Migrator) grant(text, role, function string) string {
	return strings.NewReplacer("{role}", pgx.Identifier{role}.Sanitize(), "{function}", function).Replace(m.dial.fill(text))
}

func (m *Migrator) checkRole(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, role string) error {
	var exists bool
	if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1)`, role).Scan(&exists); err != nil || exists {
		return err
	}
	return &abi.Error{
		Code:    job.CodeInvalid,
		Message: fmt.Sprintf("%s has no role %q", m.at.target, role),
		Fix:     "create it first: CREATE ROLE … LOGIN",
	}
}
