package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store/storetest"
)

func TestWordsThatNoBuildWritesAreRefused(t *testing.T) {
	columns := append([]storetest.Column{
		{Table: "runs", Column: "state", Where: "finished_at IS NULL", Words: append([]string{"running", "blocked"}, storetest.WaitingStates...)},
		{Table: "runs", Column: "state", Where: "finished_at IS NOT NULL", Words: storetest.FinishedStates},
	}, storetest.StepColumns...)
	storetest.RunWords(t, func(tb testing.TB) storetest.DB { return openTest(tb, Memory) }, columns, func(db storetest.DB, c storetest.Column, word string) error {
		where := c.Where
		if where == "" {
			where = "true"
		}
		return db.(testDB).w.do(t.Context(), func(tx *tx) error {
			err := tx.db.Exec(fmt.Sprintf("UPDATE %s SET %s = '%s' WHERE %s", c.Table, c.Column, word, where))
			if err != nil && !errors.Is(err, sqlite3.CONSTRAINT_CHECK) {
				t.Errorf("%s.%s = %q: %v", c.Table, c.Column, word, err)
			}
			return err
		})
	})
}

// A row that somebody forged before the database knew better is told of, and nothing
// is migrated until it is mended.
func TestAForgedRowIsToldOfByTheMigration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	makeVersion(t, path, 7)
	execOn(t, path, `INSERT INTO runs (seq, id, job, queue, tenant, key, state, priority, max_attempts, run_at, created_at, enqueued_by, traceparent)
		VALUES (1, x'01', 'j', 'q', '', '', 'hibernating', 0, 3, 0, 0, '', ''), (2, x'02', 'j', 'q', '', '', 'ready', -101, 3, 0, 0, '', ''),
		(3, x'03', 'j', 'q', '', '', 'delayed', -101, 3, 0, 0, '', '')`)
	m := migrator(t, Config{Path: path})
	_, err := m.Migrate(t.Context())
	wantCode(t, err, job.CodeRowStatusUnknown)
	if v, err := m.Version(t.Context()); v != 7 || err != nil {
		t.Fatalf("version %d, %v", v, err)
	}
	execOn(t, path, "UPDATE runs SET state = 'ready' WHERE seq = 1")
	applied, err := m.Migrate(t.Context())
	if err != nil || !slices.Equal(applied, versionsAfter(7)) {
		t.Fatalf("applied %v, %v", applied, err)
	}
	// What had aged is known to have, though not what it was enqueued with.
	s := open(t, Config{Path: path})
	err = s.read(t.Context(), func(c *conn) error {
		st, _, err := c.db.Prepare("SELECT group_concat(priority || ' ' || coalesce(asked_priority, '-'), ', ' ORDER BY seq) FROM runs")
		if err != nil {
			return err
		}
		defer st.Close()
		if st.Step(); st.ColumnText(0) != "0 -, -101 0, 0 -" {
			t.Errorf("priorities %s", st.ColumnText(0))
		}
		return st.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}
