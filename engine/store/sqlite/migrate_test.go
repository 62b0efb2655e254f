package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func migrator(t *testing.T, cfg Config) *Migrator {
	t.Helper()
	m, err := NewMigrator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	m := migrator(t, Config{Path: path})
	if v, err := m.Version(t.Context()); v != 0 || err != nil {
		t.Fatalf("version of a missing file %d, %v", v, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("asking for the version made the file")
	}
	_, err := m.Migrate(t.Context())
	wantCode(t, err, job.CodeDatabaseMissing)

	m = migrator(t, Config{Path: path, Create: true})
	applied, err := m.Migrate(t.Context())
	if err != nil || !slices.Equal(applied, versionsAfter(0)) {
		t.Fatalf("applied %v, %v", applied, err)
	}
	if v, err := m.Version(t.Context()); v != m.Latest() || err != nil {
		t.Fatalf("version %d, %v", v, err)
	}
	if applied, err := m.Migrate(t.Context()); err != nil || len(applied) != 0 {
		t.Fatalf("applied again %v, %v", applied, err)
	}
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enqueue(t, s, 1)
	// While the store is open: another process looks.
	if v, err := m.Version(t.Context()); v != m.Latest() || err != nil {
		t.Fatalf("version of an open database %d, %v", v, err)
	}
}

// versionsAfter are what a migration from version v applies.
func versionsAfter(v int) []int {
	var out []int
	for v++; v <= latest; v++ {
		out = append(out, v)
	}
	return out
}

// makeVersion creates a database as an earlier build left it.
func makeVersion(t *testing.T, path string, v int) {
	t.Helper()
	execOn(t, path, strings.Join(migrations[:v], "\n")+fmt.Sprintf(";PRAGMA application_id=%d; PRAGMA user_version=%d", applicationID, v))
}

// execOn executes statements as another program than ours would.
func execOn(t *testing.T, path, text string) {
	t.Helper()
	c, err := openConn(Config{Path: path, BusyTimeout: time.Second}, sqlite3.OPEN_READWRITE|sqlite3.OPEN_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.db.Exec(text), c.close()); err != nil {
		t.Fatal(err)
	}
}

// A database of any earlier schema is refused by Open, and of use once migrated.
func TestMigrateFromEveryVersion(t *testing.T) {
	for v := 1; v < latest; v++ {
		path := filepath.Join(t.TempDir(), "runs.db")
		makeVersion(t, path, v)
		_, err := Open(t.Context(), Config{Path: path})
		wantCode(t, err, job.CodeDatabaseSchema)
		applied, err := migrator(t, Config{Path: path}).Migrate(t.Context())
		if err != nil || !slices.Equal(applied, versionsAfter(v)) {
			t.Fatalf("from version %d it applied %v, %v", v, applied, err)
		}
		s, err := Open(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatalf("from version %d: %v", v, err)
		}
		enqueue(t, s, 1)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestMigrateRefusesWhatIsNotItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(path, []byte("a long text that is no database at all"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := migrator(t, Config{Path: path, Create: true})
	_, err := m.Migrate(t.Context())
	wantCode(t, err, job.CodeDatabaseCorrupt)
	_, err = m.Version(t.Context())
	wantCode(t, err, job.CodeDatabaseCorrupt)
	if _, err := NewMigrator(Config{Path: Memory}); err == nil {
		t.Fatal("a database in memory has a migrator")
	}
}

// patience is for a lock that others hold one after the other, each for as long as
// the disk takes.
const patience = time.Hour

// Processes that start together on a new path all find one schema.
func TestConcurrentCreation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	var wg sync.WaitGroup
	for n := range 6 {
		wg.Go(func() {
			s, err := Open(t.Context(), Config{Path: path, Create: true, BusyTimeout: patience})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			enqueue(t, s, n)
		})
	}
	wg.Wait()
	s := open(t, Config{Path: path})
	if n := stats(t, s).Ready; n != 6 {
		t.Fatalf("%d runs, want 6", n)
	}
}

// Commands come and go, each opening the file, writing once and closing it.
func TestCommandsComeAndGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	const commands, writes = 4, 10
	var wg sync.WaitGroup
	for c := range commands {
		wg.Go(func() {
			for n := range writes {
				s, err := Open(t.Context(), Config{Path: path, Create: true, BusyTimeout: patience})
				if err != nil {
					t.Error(err)
					return
				}
				_, err = s.Enqueue(t.Context(), []store.EnqueueParams{params(c*writes + n)})
				if err = errors.Join(err, s.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s := open(t, Config{Path: path})
	for n := range commands * writes {
		if !exists(t, s, n) {
			t.Errorf("run %d is gone", n)
		}
	}
}
