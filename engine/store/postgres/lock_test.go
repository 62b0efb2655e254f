package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// lockTable locks a table until unlock. blocked waits until the session of that
// process id waits for it.
func lockTable(t *testing.T, s *Store, table string) (blocked func(pid uint32), unlock func()) {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, s.cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, s.cfg.dialect().fill("LOCK TABLE {schema}."+table)); err != nil {
		t.Fatal(err)
	}
	blocked = func(pid uint32) {
		t.Helper()
		for {
			var waits bool
			if err := tx.QueryRow(ctx, "SELECT pg_backend_pid() = ANY (pg_blocking_pids($1))", int32(pid)).Scan(&waits); err != nil {
				t.Fatal(err)
			}
			if waits {
				return
			}
			if err := pauseFor(t.Context(), time.Millisecond); err != nil {
				t.Fatal("the session never came to wait")
			}
		}
	}
	return blocked, func() {
		t.Helper()
		if err := tx.Rollback(ctx); err != nil {
			t.Error(err)
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// kill ends the session of a process id.
func kill(t *testing.T, s *Store, pid uint32) {
	t.Helper()
	connected(t, s.cfg.URL, func(c *pgx.Conn) {
		if _, err := c.Exec(context.Background(), "SELECT pg_terminate_backend($1)", int32(pid)); err != nil {
			t.Fatal(err)
		}
	})
}

// overdue is a context whose time is up, which nobody has noticed yet.
type overdue struct {
	context.Context
	asked bool
	done  chan struct{} // closed
}

func (c *overdue) Done() <-chan struct{} { return c.done }

func (c *overdue) Err() error {
	if !c.asked {
		c.asked = true
		return nil
	}
	return context.DeadlineExceeded
}

// However a call's time ends, its error says what kept it.
func TestACallWhoseTimeEndsBetweenTwoTriesSaysWhatKeptIt(t *testing.T) {
	s := open(t, migrated(t, Config{}))
	ctx := &overdue{Context: t.Context(), done: make(chan struct{})}
	err := s.on(ctx, func(*pgx.Conn) (bool, error) {
		close(ctx.done)
		return true, &pgconn.PgError{Severity: "ERROR", Code: "40P01", Message: "deadlock detected"}
	})
	if abi.CodeOf(err) != job.CodeDatabaseBusy || errors.Is(err, store.ErrUnknown) {
		t.Errorf("the call answers %v", err)
	}
}
