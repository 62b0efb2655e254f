package outbox

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

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

// installed is a Config for a fresh outbox in a schema whose name needs quoting.
func installed(tb testing.TB) Config {
	tb.Helper()
	cfg := Config{URL: sharedDatabase(tb), Schema: fmt.Sprintf("Desk %d", schemas.Add(1))}
	migrate(tb, cfg)
	return cfg
}

func migrate(tb testing.TB, cfg Config) *Migrator {
	tb.Helper()
	m, err := OpenMigrator(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := m.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return m
}

// open opens an outbox and closes it when the test ends.
func open(tb testing.TB, cfg Config) *DB {
	tb.Helper()
	d, err := Open(context.Background(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return d
}

// app is an application's session with its database.
type app struct {
	*pgx.Conn
	testing.TB
	schema Schema
}

// connect opens a session as the superuser.
func session(tb testing.TB, cfg Config) *app {
	tb.Helper()
	c, err := pgx.Connect(context.Background(), cfg.URL)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close(context.Background()) })
	return &app{Conn: c, TB: tb, schema: Schema(cfg.Schema)}
}

// sql is text with {schema} filled in.
func (a *app) sql(text string) string { return dialect{schema: string(a.schema)}.fill(text) }

func (a *app) exec(text string, args ...any) {
	a.Helper()
	if _, err := a.Exec(context.Background(), a.sql(text), args...); err != nil {
		a.Fatal(err)
	}
}

// enqueue calls the function with the given arguments, as SQL.
func (a *app) enqueue(args string) (id string) {
	a.Helper()
	if err := a.QueryRow(context.Background(), a.sql("SELECT {schema}.enqueue("+args+")::text")).Scan(&id); err != nil {
		a.Fatal(err)
	}
	return id
}

// value is the first column of a query's first row.
func value[T any](a *app, text string, args ...any) (v T) {
	a.Helper()
	if err := a.QueryRow(context.Background(), a.sql(text), args...).Scan(&v); err != nil {
		a.Fatal(err)
	}
	return v
}

// tx runs f in a transaction and commits it.
func (a *app) tx(f func(tx pgx.Tx)) {
	a.Helper()
	tx, err := a.Begin(context.Background())
	if err != nil {
		a.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	f(tx)
	if err := tx.Commit(context.Background()); err != nil {
		a.Fatal(err)
	}
}

// lease is the longest: one lapses when a test says so.
const lease = time.Hour

// claim claims for a relay, and fails on errors.
func claim(tb testing.TB, d *DB, relay string, limit int) []store.Staged {
	tb.Helper()
	rows, err := d.Claim(context.Background(), store.StagedClaimParams{Relay: relay, Limit: limit, Lease: lease})
	if err != nil {
		tb.Fatal(err)
	}
	return rows
}

// settle settles, and fails on errors.
func settle(tb testing.TB, d *DB, batch ...store.StagedSettleParams) []bool {
	tb.Helper()
	landed, err := d.SettleStaged(context.Background(), batch)
	if err != nil {
		tb.Fatal(err)
	}
	return landed
}

// publish is the settle of a row as a run of its own id.
func publish(s store.Staged) store.StagedSettleParams {
	return store.StagedSettleParams{Ref: s.Ref(), RunID: s.ID}
}

// settlesOf publishes all rows.
func settlesOf(rows []store.Staged) []store.StagedSettleParams {
	batch := make([]store.StagedSettleParams, len(rows))
	for i := range rows {
		batch[i] = publish(rows[i])
	}
	return batch
}

// reject is the settle of a row with a code.
func reject(s store.Staged, code string) store.StagedSettleParams {
	return store.StagedSettleParams{Ref: s.Ref(), Code: code, Reason: "reason of " + code}
}

func idsOf(rows []store.Staged) []string {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return ids
}

// lapse ends the leases of all claimed rows.
func (a *app) lapse() {
	a.Helper()
	a.exec("UPDATE {schema}.outbox SET leased_until = now() - interval '1 millisecond' WHERE leased_until IS NOT NULL")
}
