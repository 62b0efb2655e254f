package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store/storetest"
)

func TestWordsThatNoBuildWritesAreRefused(t *testing.T) {
	columns := append([]storetest.Column{
		{Table: "waiting", Column: "state", Words: storetest.WaitingStates},
		{Table: "finished", Column: "state", Words: storetest.FinishedStates},
		{Table: "tally", Column: "state", Words: storetest.FinishedStates},
	}, storetest.StepColumns...)
	storetest.RunWords(t, openDB, columns, func(s storetest.DB, c storetest.Column, word string) error {
		d := s.(db)
		_, err := d.pool.Exec(t.Context(), d.cfg.dialect().fill(`UPDATE {schema}.`+c.Table+` SET `+c.Column+` = $1`), word)
		var pg *pgconn.PgError
		if err != nil && (!errors.As(err, &pg) || pg.Code != checkViolation) {
			t.Errorf("%s.%s = %q: %v", c.Table, c.Column, word, err)
		}
		return err
	})
}

// makeVersion makes a schema as an earlier build left it.
func makeVersion(t *testing.T, cfg Config, v int) {
	t.Helper()
	texts := []string{`CREATE SCHEMA {schema}`, `CREATE TABLE {schema}.schema_version (version integer NOT NULL PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())`}
	texts = append(texts, migrations[:v]...)
	texts = append(texts, fmt.Sprintf(`INSERT INTO {schema}.schema_version SELECT generate_series(1, %d)`, v))
	execOn(t, cfg, strings.Join(texts, ";\n"))
}

// execOn executes statements as the owner of the schema.
func execOn(t *testing.T, cfg Config, text string) {
	t.Helper()
	connected(t, cfg.URL, func(c *pgx.Conn) {
		if _, err := c.Exec(context.Background(), cfg.dialect().fill(text), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	})
}

// A schema of any earlier version is of use once migrated.
func TestMigrateFromEveryVersion(t *testing.T) {
	url := sharedDatabase(t)
	for v := 1; v < latest; v++ {
		cfg := Config{URL: url, Schema: fmt.Sprintf("from %d", v)}
		makeVersion(t, cfg, v)
		m, err := OpenMigrator(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if applied, err := m.Migrate(t.Context()); err != nil || len(applied) != latest-v || applied[0] != v+1 {
			t.Fatalf("from version %d it applied %v, %v", v, applied, err)
		}
		s := open(t, cfg)
		if _, err := s.Enqueue(t.Context(), entry(1)); err != nil {
			t.Fatalf("from version %d: %v", v, err)
		}
		execOn(t, cfg, `DROP SCHEMA {schema} CASCADE`)
	}
}

// A row that somebody forged before the database knew better is told of, and nothing
// is migrated until it is mended.
func TestAForgedRowIsToldOfByTheMigration(t *testing.T) {
	cfg := Config{URL: sharedDatabase(t), Schema: "forged"}
	makeVersion(t, cfg, 8)
	execOn(t, cfg, `INSERT INTO {schema}.waiting (id, job, queue, state, priority, max_attempts) VALUES
		('00000000-0000-7000-8000-000000000001', 'j', 'q', 'hibernating', 0, 3), ('00000000-0000-7000-8000-000000000002', 'j', 'q', 'ready', -101, 3)`)
	m, err := OpenMigrator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Migrate(t.Context())
	wantRefused(t, err, job.CodeRowStatusUnknown, "select distinct")
	if v, err := m.Version(t.Context()); v != 8 || err != nil {
		t.Fatalf("version %d, %v", v, err)
	}
	execOn(t, cfg, `UPDATE {schema}.waiting SET state = 'ready' WHERE state = 'hibernating'`)
	if applied, err := m.Migrate(t.Context()); err != nil || len(applied) != latest-8 {
		t.Fatalf("applied %v, %v", applied, err)
	}
	// What had aged is known to have, though not what it was enqueued with.
	r, err := open(t, cfg).Get(t.Context(), "00000000-0000-7000-8000-000000000002")
	if err != nil || !r.Aged || r.Priority != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
