package sqlite

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// claimOne registers a worker and claims one run.
func claimOne(t testing.TB, s *Store, worker string) job.Run {
	t.Helper()
	if err := s.Register(t.Context(), store.RegisterParams{ID: worker, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	res, err := s.Claim(t.Context(), store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: "q", Limit: 1}}})
	if err != nil || len(res.Runs) != 1 {
		t.Fatalf("claimed %d, %v", len(res.Runs), err)
	}
	return res.Runs[0]
}

func TestAFullDiskLosesNothingAndPasses(t *testing.T) {
	f, vfs := newFaults()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "runs.db"), vfs: vfs})
	enqueue(t, s, 1)
	fail(&f.write, errDiskFull)
	_, err := s.Enqueue(t.Context(), []store.EnqueueParams{params(2)})
	wantCode(t, err, job.CodeDatabaseFull)
	if errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a write that found no space has an unknown outcome: %v", err)
	}
	if !strings.Contains(err.Error(), s.cfg.Path) {
		t.Errorf("the error does not say where: %v", err)
	}
	if !exists(t, s, 1) || exists(t, s, 2) {
		t.Fatal("reads while the disk is full")
	}
	fail(&f.write, nil)
	enqueue(t, s, 3)
	if exists(t, s, 2) {
		t.Fatal("a failed write came back")
	}
}

func TestAnUnsyncedCommitIsUnknownAndCanBeAskedAgain(t *testing.T) {
	f, vfs := newFaults()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "runs.db"), vfs: vfs})
	enqueue(t, s, 1)
	r := claimOne(t, s, "w")
	settle := []store.SettleParams{{Ref: job.Ref{RunID: r.ID, Worker: "w", Claim: 1}, Outcome: job.Completed, To: job.Done, Output: []byte("1")}}
	fail(&f.sync, errNoSync)
	_, err := s.Settle(t.Context(), settle)
	if !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("answer %v, want ErrUnknown", err)
	}
	wantCode(t, err, job.CodeDatabaseUnavailable)
	fail(&f.sync, nil)
	for range 2 {
		res, err := s.Settle(t.Context(), settle)
		if err != nil || !res[0].Landed {
			t.Fatalf("asked again: %+v, %v", res, err)
		}
	}
	if got, err := s.Get(t.Context(), r.ID); err != nil || got.State != job.Done {
		t.Fatalf("run %+v, %v", got, err)
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	raw := func(name, text string) string {
		path := filepath.Join(dir, name)
		db, err := sqlite3.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
		return path
	}
	withVersion := func(name string, version string) string {
		path := filepath.Join(dir, name)
		s, err := Open(t.Context(), Config{Path: path, Create: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return raw(name, "PRAGMA user_version="+version)
	}
	for _, tc := range []struct {
		name, path string
		create     bool
		code, says string
	}{
		{"no path", "", true, job.CodeInvalid, "path"},
		{"missing file", filepath.Join(dir, "none.db"), false, job.CodeDatabaseMissing, "none.db"},
		{"missing folder", filepath.Join(dir, "no", "such.db"), true, job.CodeDatabaseUnavailable, "such.db"},
		{"a folder", dir, true, job.CodeDatabaseUnavailable, dir},
		{"text", file("notes.txt", bytes.Repeat([]byte("dear diary, "), 100)), true, job.CodeDatabaseCorrupt, "notes.txt"},
		{"empty file without Create", file("empty.db", nil), false, job.CodeDatabaseSchema, "runner migrate up"},
		{"another program's", raw("other.db", "CREATE TABLE recipes (name)"), true, job.CodeDatabaseSchema, "another program"},
		{"another program's with an id", raw("cad.db", "CREATE TABLE t (a); PRAGMA application_id=7; PRAGMA user_version=1"), true, job.CodeDatabaseSchema, "another program"},
		{"newer schema", withVersion("newer.db", "99"), true, job.CodeDatabaseSchema, "upgrade"},
		{"older schema", withVersion("older.db", "0"), true, job.CodeDatabaseSchema, "runner migrate up"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, _ := os.ReadFile(tc.path)
			s, err := Open(t.Context(), Config{Path: tc.path, Create: tc.create})
			if err == nil {
				s.Close()
			}
			wantCode(t, err, tc.code)
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
			if after, _ := os.ReadFile(tc.path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
	t.Run("empty file with Create", func(t *testing.T) {
		open(t, Config{Path: file("fresh.db", nil)})
	})
	t.Run("a path that looks like a URI", func(t *testing.T) {
		path := filepath.Join(dir, "a b+c?mode=memory&x=%20#ü.db")
		enqueue(t, open(t, Config{Path: path}), 1)
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
	})
}

// Another process that holds the write lock is waited for, and then named.
func TestAnotherProcessesLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	s := open(t, Config{Path: path, BusyTimeout: time.Millisecond})
	enqueue(t, s, 1)
	other, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Enqueue(t.Context(), []store.EnqueueParams{params(2)})
	wantCode(t, err, job.CodeDatabaseBusy)
	if !exists(t, s, 1) {
		t.Fatal("reads wait for a writer")
	}
	if err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, 3)
}

// damaged is a database with some content, and its closed file's bytes.
func damaged(t testing.TB) (path string, content []byte) {
	path = filepath.Join(t.TempDir(), "runs.db")
	s, err := Open(t.Context(), Config{Path: path, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	var batch []store.EnqueueParams
	for n := range 300 {
		p := params(n)
		p.Key, p.Tenant, p.Input = id(n), string(rune('a'+n%7)), bytes.Repeat([]byte{'x'}, n*7)
		batch = append(batch, p)
	}
	if _, err := s.Enqueue(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if content, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func TestADamagedPageIsNamed(t *testing.T) {
	path, content := damaged(t)
	for page := 1; page < len(content)/4096; page++ { // all but the first
		copy(content[page*4096:], bytes.Repeat([]byte{0xa5}, 4096))
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Config{Path: path})
	if err == nil {
		defer s.Close()
		_, err = s.Get(t.Context(), id(5))
	}
	wantCode(t, err, job.CodeDatabaseCorrupt)
	if !strings.Contains(err.Error(), path) {
		t.Errorf("error %q does not say where", err)
	}
}

// Whatever a file holds, the store answers with a code: no panic, no hang, and
// nothing but what the codes say.
func TestDamageAnywhereIsAnswered(t *testing.T) {
	path, content := damaged(t)
	rnd := rand.New(rand.NewPCG(*seed, 0))
	found := 0
	for round := range 25 {
		bad := bytes.Clone(content)
		for range 1 + rnd.IntN(40) {
			bad[rnd.IntN(len(bad))] ^= byte(1 << rnd.IntN(8))
		}
		for _, suffix := range []string{"-wal", "-shm"} {
			os.Remove(path + suffix)
		}
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := useDamaged(t, path); err != nil {
			found++
			if abi.CodeOf(err) == "" {
				t.Errorf("round %d: an error without a code: %v", round, err)
			}
		}
	}
	if found == 0 {
		t.Error("no damage was found")
	}
}

func useDamaged(t *testing.T, path string) error {
	ctx := t.Context()
	s, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	defer s.Close()
	var errs []error
	add := func(err error) {
		if code := abi.CodeOf(err); code != job.CodeNotFound && code != job.CodeNotCancellable && code != job.CodeRowStatusUnknown {
			errs = append(errs, err)
		}
	}
	_, err = s.Stats(ctx)
	add(err)
	_, err = s.List(ctx, store.ListParams{Limit: 1000})
	add(err)
	for n := range 20 {
		_, err = s.Get(ctx, id(n*13))
		add(err)
		_, err = s.ListSteps(ctx, id(n))
		add(err)
	}
	add(s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}))
	res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 100}}})
	add(err)
	for _, r := range res.Runs {
		_, err = s.Settle(ctx, []store.SettleParams{{Ref: job.Ref{RunID: r.ID, Worker: "w", Claim: r.Claims}, Outcome: job.Completed, To: job.Done, Retention: 1}})
		add(err)
	}
	for n := range 50 {
		_, err = s.Enqueue(ctx, []store.EnqueueParams{params(1000 + n)})
		add(err)
	}
	_, err = s.Cancel(ctx, store.CancelParams{ID: id(7)})
	add(err)
	_, err = s.Purge(ctx, 100)
	add(err)
	return errors.Join(errs...)
}
