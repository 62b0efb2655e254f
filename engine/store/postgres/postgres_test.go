package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
	"github.com/jobrunner/runner/engine/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// migrated is a Config for a fresh schema of the latest version. Schemas share a
// database, as they may anywhere; their names need quoting.
func migrated(tb testing.TB, cfg Config) Config {
	tb.Helper()
	cfg = migrate(tb, cfg)
	tb.Cleanup(func() {
		// Thousands of tables would slow down the tests after this one.
		connected(tb, cfg.URL, func(c *pgx.Conn) {
			var refused *pgconn.PgError
			for {
				_, err := c.Exec(context.Background(), cfg.dialect().fill("DROP SCHEMA {schema} CASCADE"))
				// The server may still be at what a client that is gone asked of it.
				if errors.As(err, &refused) && refused.Code == "40P01" { // deadlock
					continue
				}
				if err != nil {
					tb.Error(err)
				}
				return
			}
		})
	})
	return cfg
}

// migrate makes a schema.
func migrate(tb testing.TB, cfg Config) Config {
	tb.Helper()
	cfg.URL = sharedDatabase(tb)
	cfg.Schema = fmt.Sprintf("Fleet %d", schemas.Add(1))
	m, err := OpenMigrator(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := m.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return cfg
}

var (
	schemas  atomic.Int64
	database struct {
		once sync.Once
		url  string
	}
)

// sharedDatabase is the database of most tests, left to go with its server.
func sharedDatabase(tb testing.TB) string {
	tb.Helper()
	database.once.Do(func() {
		url, _, err := pgtest.Shared(tb).CreateDatabase(context.Background())
		if err != nil {
			tb.Error(err)
		}
		database.url = url
	})
	if database.url == "" {
		tb.FailNow()
	}
	return database.url
}

// connected runs f with a connection as the superuser.
func connected(tb testing.TB, url string, f func(c *pgx.Conn)) {
	tb.Helper()
	c, err := pgx.Connect(context.Background(), url)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close(context.Background())
	f(c)
}

// open opens a store on a migrated database and closes it when the test ends.
func open(tb testing.TB, cfg Config) *Store {
	tb.Helper()
	s, err := Open(context.Background(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	if _, ok := tb.(*testing.T); ok {
		s.claims.limit = time.Hour // a busy machine is not to change what is tested
	}
	return s
}

// testNow is a clock that stands still until it is moved.
const testNow = `(SELECT at FROM {schema}.test_clock)`

// db is a store whose clock tests move.
type db struct {
	*Store
	tb testing.TB
}

func (d db) exec(tb testing.TB, sql string, args ...any) {
	tb.Helper()
	if _, err := d.pool.Exec(context.Background(), d.cfg.dialect().fill(sql), args...); err != nil {
		tb.Fatal(err)
	}
}

func (d db) Advance(by time.Duration) {
	d.exec(d.tb, `UPDATE {schema}.test_clock SET at = at + $1::bigint * interval '1 millisecond'`, by.Milliseconds())
	d.claims.reset()
}

func (d db) PlantRunState(tb testing.TB, runID, state string) {
	d.unchecked(tb, "waiting", "waiting_state", `UPDATE {schema}.waiting SET state = $2 WHERE id = $1::uuid`, runID, state)
}

func (d db) PlantStepStatus(tb testing.TB, runID, step, status string) {
	d.unchecked(tb, "steps", "steps_status", `UPDATE {schema}.steps SET status = $3 WHERE run_id = $1::uuid AND name = $2`, runID, step, status)
}

// unchecked executes a statement as one whose schema has not the constraint, which
// holds again for what comes after it.
func (d db) unchecked(tb testing.TB, table, constraint, sql string, args ...any) {
	tb.Helper()
	dia := d.cfg.dialect()
	connected(tb, d.cfg.URL, func(c *pgx.Conn) {
		err := pgx.BeginFunc(context.Background(), c, func(tx pgx.Tx) error {
			var def string
			err := tx.QueryRow(context.Background(), dia.fill(`SELECT regexp_replace(pg_get_constraintdef(oid), ' NOT VALID$', '') FROM pg_constraint
				WHERE conname = $1 AND conrelid = ('{schema}.' || $2::text)::regclass`), pgx.QueryExecModeExec, constraint, table).Scan(&def)
			for _, s := range []string{`SET LOCAL ROLE NONE`, `ALTER TABLE {schema}.` + table + ` DROP CONSTRAINT ` + constraint} {
				if err == nil {
					_, err = tx.Exec(context.Background(), dia.fill(s))
				}
			}
			if err == nil {
				_, err = tx.Exec(context.Background(), dia.fill(sql), append([]any{pgx.QueryExecModeExec}, args...)...)
			}
			if err == nil {
				_, err = tx.Exec(context.Background(), dia.fill(`ALTER TABLE {schema}.`+table+` ADD CONSTRAINT `+constraint+` `+def+` NOT VALID`))
			}
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
	})
}

// openDB opens a store on a schema of its own, with a clock that tests move, as
// a role that has the least privileges of a worker.
func openDB(tb testing.TB) storetest.DB { return openWith(tb, Config{}) }

func openWith(tb testing.TB, cfg Config) db { return openThroughURL(tb, cfg, "") }

// testWorker is a role with the privileges of a worker, in the schemas of tests.
const testWorker = "runner_test_worker"

// grantWorker gives the role what a worker needs, and the clock of tests.
func grantWorker(tb testing.TB, cfg Config) string {
	tb.Helper()
	grants, err := Grants(cfg, RoleWorker, testWorker)
	if err != nil {
		tb.Fatal(err)
	}
	return `
			DO $$ BEGIN CREATE ROLE ` + testWorker + `; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
			GRANT SELECT, UPDATE ON {schema}.test_clock TO ` + testWorker + `;` + grants
}

// emptied are schemas that a test has left empty: making one takes a hundred
// times as long as deleting the rows of a test.
var emptied struct {
	sync.Mutex
	names []string
}

// withClock is a Config for an empty schema with a clock that tests move. When
// the test ends its rows are deleted, and another test uses it again; not so a
// schema whose tables the test changes.
func withClock(tb testing.TB, cfg Config, again bool) Config {
	tb.Helper()
	emptied.Lock()
	if n := len(emptied.names); n > 0 && again {
		cfg.URL, cfg.Schema = sharedDatabase(tb), emptied.names[n-1]
		emptied.names = emptied.names[:n-1]
	}
	emptied.Unlock()
	made := cfg.Schema == ""
	if made && again {
		cfg = migrate(tb, cfg)
	} else if made {
		cfg = migrated(tb, cfg)
	}
	dia := cfg.dialect()
	cfg.now = dia.fill(testNow)
	run := func(text string) {
		connected(tb, cfg.URL, func(c *pgx.Conn) {
			if _, err := c.Exec(context.Background(), dia.fill(text), pgx.QueryExecModeSimpleProtocol); err != nil {
				tb.Fatal(err)
			}
		})
	}
	if made {
		run(`
			CREATE TABLE {schema}.test_clock (at timestamptz NOT NULL);
			INSERT INTO {schema}.test_clock SELECT ` + systemNow + `;
			CREATE FUNCTION {schema}.test_now() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT ` + cfg.now + ` $$;
			ALTER TABLE {schema}.waiting ALTER run_at SET DEFAULT {schema}.test_now(), ALTER created_at SET DEFAULT {schema}.test_now();` + grantWorker(tb, cfg))
	} else {
		run(`UPDATE {schema}.test_clock SET at = ` + systemNow)
	}
	if !again {
		return cfg
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			return // whatever it left there is not for others
		}
		run(`DO $$ DECLARE t regclass; BEGIN
			FOR t IN SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident({schema_literal})) AND relkind IN ('r', 'p')
				AND NOT relispartition AND relname NOT IN ('schema_version', 'test_clock') LOOP
				EXECUTE format('DELETE FROM %s', t);
			END LOOP;
		END $$`)
		emptied.Lock()
		defer emptied.Unlock()
		emptied.names = append(emptied.names, cfg.Schema)
	})
	return cfg
}

// openOwned opens a store on a schema for this test alone, as its owner.
func openOwned(tb testing.TB) db {
	tb.Helper()
	return db{Store: open(tb, withClock(tb, Config{}, false)), tb: tb}
}

// openThroughURL is openWith by way of another URL of the same database.
func openThroughURL(tb testing.TB, cfg Config, url string) db {
	tb.Helper()
	cfg = withClock(tb, cfg, true)
	if url != "" {
		cfg.URL = url
	} else {
		cfg.URL = with(tb, cfg.URL, "", "role", testWorker)
	}
	d := db{Store: open(tb, cfg), tb: tb}
	d.claims.still = true // a slow machine is not to change what is tested
	return d
}
