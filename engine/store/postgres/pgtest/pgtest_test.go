package pgtest_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A database is empty, its own, and on a server that keeps its promises.
func TestDatabaseIsFreshAndDurable(t *testing.T) {
	a, b := pgtest.Database(t), pgtest.Database(t)
	if a == b {
		t.Fatal("two callers got one database")
	}
	c, err := pgx.Connect(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	for _, setting := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		var v string
		if err := c.QueryRow(t.Context(), "select current_setting($1)", setting).Scan(&v); err != nil {
			t.Fatal(err)
		}
		if v != "on" {
			t.Errorf("%s is %s", setting, v)
		}
	}
}

// What was committed is there after a crash of the server.
func TestServerComesBackFromACrash(t *testing.T) {
	s, err := pgtest.Start(t.Context(), pgtest.Options{Settings: map[string]string{"max_connections": "20"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Exec(t.Context(), "create table kept as select 1 as one"); err != nil {
		t.Fatal(err)
	}
	if err := s.Down(t.Context(), "immediate"); err != nil {
		t.Fatal(err)
	}
	if err := s.Exec(t.Context(), "select 1"); err == nil {
		t.Fatal("a stopped server answers")
	}
	if err := s.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Exec(t.Context(), "drop table kept"); err != nil {
		t.Fatal(err)
	}
}
