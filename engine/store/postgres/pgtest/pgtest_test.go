package pgtest_test

import (
	"context"
	"fmt"
	"os"
	"slices"
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

// The server's user may not remove its folder from one that is not its own.
func TestServerLeavesNothingInAFolderOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s, err := pgtest.Start(t.Context(), pgtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || slices.ContainsFunc(left, os.DirEntry.IsDir) {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestNoTableHashedFindsOne(t *testing.T) {
	c, err := pgx.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(t.Context(), "CREATE TABLE t (id int PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	const text = "SELECT EXISTS (SELECT FROM t WHERE t.id = u.id %s) FROM unnest($1::int[]) u(id)"
	for _, bad := range []bool{true, false} {
		var found failures
		found.TB = t
		offset := map[bool]string{true: "", false: "OFFSET 0"}[bad]
		pgtest.NoTableHashed(&found, c, map[string]string{fmt.Sprint(bad): fmt.Sprintf(text, offset)})
		if found.n > 0 != bad {
			t.Errorf("with %q: %d failures", offset, found.n)
		}
	}
}

// failures counts them.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Errorf(string, ...any) { f.n++ }
