package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/sqltext"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// applicationID marks a file as a runner's ("rnnr" in ASCII), so that another
// program's database is never written to.
const applicationID = 0x726e6e72

// latest is the schema this build knows: the number of its migrations.
var latest = len(migrations)

// migrations are the texts of migrations/NNN_name.sql; version n is at n-1.
var migrations = sqltext.Migrations(migrationFiles, "")

// Migrator brings a database's schema up to date. It opens the file for each
// call and keeps nothing open in between.
type Migrator struct{ cfg Config }

var _ store.Migrator = (*Migrator)(nil)

// NewMigrator returns the migrator of cfg.Path. A database in memory has none:
// Open gives it the latest schema.
func NewMigrator(cfg Config) (*Migrator, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.memory() {
		return nil, store.Invalid("a database in memory cannot be migrated")
	}
	return &Migrator{cfg: cfg}, nil
}

// Latest implements store.Migrator.
func (m *Migrator) Latest() int { return latest }

// Version implements store.Migrator. A missing file is an empty database.
func (m *Migrator) Version(ctx context.Context) (int, error) {
	if err := m.cfg.checkNames(); err != nil {
		return 0, err
	}
	c, err := openConn(m.cfg, sqlite3.OPEN_READONLY)
	if err != nil {
		if _, serr := os.Stat(m.cfg.Path); errors.Is(serr, os.ErrNotExist) {
			return 0, nil
		}
		return 0, m.cfg.translate(err)
	}
	defer c.close()
	sc, err := c.schema()
	if err != nil {
		return 0, m.cfg.translate(err)
	}
	return sc.version, m.cfg.checkOurs(sc)
}

// Migrate implements store.Migrator. It creates a missing file only with
// Config.Create, and refuses a newer schema.
func (m *Migrator) Migrate(ctx context.Context) ([]int, error) {
	if m.cfg.Create {
		m.cfg.createFile()
	} else if err := m.cfg.checkExists(); err != nil {
		return nil, err
	}
	if err := m.cfg.checkNames(); err != nil {
		return nil, err
	}
	c, err := openWriter(m.cfg)
	if err != nil {
		return nil, m.cfg.translate(err)
	}
	defer c.close()
	var applied []int
	err = m.cfg.whileBusy(func() (err error) {
		applied, err = c.migrate(&m.cfg)
		return err
	})
	return applied, m.cfg.translate(err)
}

// schema is what a file says of itself.
type schema struct {
	application int64
	version     int
	empty       bool // no table of anyone
}

// schema reads them in one transaction: another process may be creating them.
func (c *conn) schema() (sc schema, err error) {
	err = c.snapshot(func() error {
		if sc.application, err = c.pragma("application_id"); err != nil {
			return err
		}
		version, err := c.pragma("user_version")
		if err != nil {
			return err
		}
		sc.version = int(version)
		tables, err := c.pragma("schema_version") // 0 until the first table
		sc.empty = tables == 0
		return err
	})
	return sc, err
}

// checkOurs refuses another program's database.
func (c *Config) checkOurs(sc schema) error {
	if sc.empty && sc.application == 0 || sc.application == applicationID {
		return nil
	}
	return &abi.Error{
		Code:    job.CodeDatabaseSchema,
		Message: fmt.Sprintf("%s is the SQLite database of another program", c.Path),
		Fix:     "name another file; this one was not touched",
	}
}

func (c *Config) checkNotNewer(sc schema) error {
	if sc.version <= latest {
		return nil
	}
	return &abi.Error{
		Code:    job.CodeDatabaseSchema,
		Message: fmt.Sprintf("the schema of %s is version %d, and this build knows %d", c.Path, sc.version, latest),
		Fix:     "upgrade this runner to the version that migrated the database",
	}
}

// errForged refuses a migration whose checks a row does not pass: no build wrote it.
func errForged(path string, version int, err error) error {
	return &abi.Error{
		Code:    job.CodeRowStatusUnknown,
		Message: fmt.Sprintf("migration %d: a row of %s is in a state, or of a kind, that no build of the runner writes; nothing was migrated", version, path),
		Fix: "look for it with `sqlite3 " + path + " \"select hex(id), state, priority from runs where state not in ('ready', 'delayed', 'running', " +
			"'suspended', 'blocked', 'done', 'failed', 'dead', 'cancelled')\"`, and likewise in steps, attempts and pauses; mend or delete it, and migrate again",
		Err: err,
	}
}

func (c *Config) checkExists() error {
	if _, err := os.Stat(c.Path); errors.Is(err, os.ErrNotExist) {
		return &abi.Error{
			Code:    job.CodeDatabaseMissing,
			Message: fmt.Sprintf("there is no database at %s", c.Path),
			Fix:     "check the path, or let `runner serve` create it",
			Err:     err,
		}
	}
	return nil
}

// openChecked opens the writing connection of a database whose schema is the
// latest, after creating it if it is empty and cfg says so.
func openChecked(cfg *Config) (*conn, error) {
	create := cfg.Create || cfg.memory()
	if !create {
		if err := cfg.checkExists(); err != nil {
			return nil, err
		}
	} else if !cfg.memory() {
		cfg.createFile()
	}
	if err := cfg.checkNames(); err != nil {
		return nil, err
	}
	c, err := openWriter(*cfg)
	if err != nil {
		return nil, err
	}
	if err := cfg.whileBusy(func() error { return c.ready(cfg, create) }); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// whileBusy repeats what found the database busy, for as long as BusyTimeout.
// SQLite does not wait by itself where waiting could deadlock: when a database
// is put in WAL mode, or was read before it is written.
func (c *Config) whileBusy(do func() error) error {
	deadline := time.Now().Add(c.BusyTimeout)
	for {
		err := do()
		if !errors.Is(err, sqlite3.BUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (c *conn) ready(cfg *Config, create bool) error {
	sc, err := c.schema()
	if err != nil {
		return err
	}
	if err := errors.Join(cfg.checkOurs(sc), cfg.checkNotNewer(sc)); err != nil {
		return err
	}
	if sc.version < latest {
		if !sc.empty || !create {
			what := fmt.Sprintf("the schema of %s is version %d, and this build needs %d", cfg.Path, sc.version, latest)
			if sc.empty {
				what = fmt.Sprintf("%s is empty", cfg.Path)
			}
			return &abi.Error{Code: job.CodeDatabaseSchema, Message: what, Fix: "run `runner migrate up`"}
		}
		if _, err := c.migrate(cfg); err != nil {
			return err
		}
	}
	return c.setDurable()
}

// migrate applies what the database lacks in one transaction, looking again
// once it has the write lock: two processes may begin at the same time.
func (c *conn) migrate(cfg *Config) (applied []int, err error) {
	sc, err := c.schema()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(cfg.checkOurs(sc), cfg.checkNotNewer(sc)); err != nil {
		return nil, err
	}
	if err := c.setDurable(); err != nil {
		return nil, err
	}
	txn, err := c.db.BeginImmediate()
	if err != nil {
		return nil, err
	}
	defer txn.End(&err)
	if sc, err = c.schema(); err != nil {
		return nil, err
	}
	for v := sc.version + 1; v <= latest; v++ {
		if err := c.db.Exec(migrations[v-1]); err != nil {
			if errors.Is(err, sqlite3.CONSTRAINT_CHECK) || strings.Contains(err.Error(), "CHECK constraint failed") {
				return nil, errForged(cfg.Path, v, err)
			}
			return nil, fmt.Errorf("migration %d: %w", v, err)
		}
		applied = append(applied, v)
	}
	return applied, c.db.Exec(fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d", applicationID, latest))
}
