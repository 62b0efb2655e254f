package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// The same as with a simulated full disk, on a real one.
func TestARealFullDiskLosesNothingAndPasses(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system takes root; the simulated full disk is tested all the same")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil { // whoever looks at it just now
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 256<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, Config{Path: filepath.Join(dir, "runs.db")})
	answered := 0
	var err error
	for err == nil {
		p := params(answered)
		p.Input = make([]byte, 20<<10)
		if _, err = s.Enqueue(t.Context(), []store.EnqueueParams{p}); err == nil {
			answered++
		}
	}
	wantCode(t, err, job.CodeDatabaseFull)
	if errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a write that found no space has an unknown outcome: %v", err)
	}
	if answered < 5 {
		t.Fatalf("only %d runs fit", answered)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, answered+1)
	for n := range answered + 2 {
		if got := exists(t, s, n); got != (n != answered) {
			t.Errorf("run %d exists: %v", n, got)
		}
	}
}

// asNobody runs f on a thread without root's permission to ignore permissions.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setfsuid(0)
	f()
}

func TestReadOnlyIsSaidAtOpen(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != filepath.Clean(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		os.Chmod(d, 0o755) // nobody may look
	}
	path := filepath.Join(dir, "runs.db")
	s, err := Open(t.Context(), Config{Path: path, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	try := func(what string, file, folder os.FileMode, want string) {
		t.Helper()
		if err := errors.Join(os.Chmod(path, file), os.Chmod(dir, folder)); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(dir, 0o755)
		asNobody(t, func() {
			s, err := Open(t.Context(), Config{Path: path})
			if err == nil {
				_, err = s.Enqueue(t.Context(), []store.EnqueueParams{params(1)})
				s.Close()
			}
			if abi.CodeOf(err) != want {
				t.Errorf("%s: %v, want %s", what, err, want)
			}
		})
	}
	try("a file that may only be read", 0o444, 0o777, job.CodeDatabaseReadOnly)
	try("a folder that may only be read", 0o666, 0o555, job.CodeDatabaseReadOnly)
	try("a file that may not be read", 0o000, 0o777, job.CodeDatabaseReadOnly)
}

func TestANewDatabaseIsItsOwnersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	s := open(t, Config{Path: path})
	enqueue(t, s, 1)
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has the permissions %o", filepath.Base(name), mode)
		}
	}
}

// Whatever happens to the file, nothing is answered as written that nobody would
// find again; put back, it is the database as before.
func TestAFileThatIsTakenAwayIsNotWrittenTo(t *testing.T) {
	for name, take := range map[string]func(path, aside string) error{
		"moved":   os.Rename,
		"deleted": func(path, aside string) error { return errors.Join(os.Link(path, aside), os.Remove(path)) },
		"replaced": func(path, aside string) error {
			return errors.Join(os.Rename(path, aside), os.WriteFile(path, []byte("another"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, aside := filepath.Join(dir, "runs.db"), filepath.Join(dir, "aside.db")
			s := open(t, Config{Path: path})
			enqueue(t, s, 1)
			if _, err := s.Now(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := take(path, aside); err != nil {
				t.Fatal(err)
			}
			_, err := s.Enqueue(t.Context(), []store.EnqueueParams{params(2)})
			wantCode(t, err, job.CodeDatabaseUnavailable)
			if !strings.Contains(err.Error(), path+" was moved, replaced or deleted") || errors.Is(err, store.ErrUnknown) {
				t.Errorf("the error is %v", err)
			}
			_, err = s.Now(t.Context())
			wantCode(t, err, job.CodeDatabaseUnavailable)

			if err := os.Rename(aside, path); err != nil {
				t.Fatal(err)
			}
			enqueue(t, s, 3)
			if _, err := s.Now(t.Context()); err != nil {
				t.Error(err)
			}
			if !exists(t, s, 1) || exists(t, s, 2) || !exists(t, s, 3) {
				t.Error("put back, it is not the database as before")
			}
		})
	}
}

// Without its log or the log's index, an open database is one for each process:
// nothing is answered as written in one that the next to open it would not find.
func TestALogThatIsTakenAwayIsNotWrittenTo(t *testing.T) {
	for name, take := range map[string]func(path, aside string) error{
		"moved":   os.Rename,
		"deleted": func(path, _ string) error { return os.Remove(path) },
		"replaced": func(path, aside string) error {
			return errors.Join(os.Rename(path, aside), os.WriteFile(path, nil, 0o600))
		},
	} {
		for _, suffix := range []string{"-wal", "-shm"} {
			t.Run(name+suffix, func(t *testing.T) {
				dir := t.TempDir()
				path, aside := filepath.Join(dir, "runs.db"), filepath.Join(dir, "aside")
				s := open(t, Config{Path: path})
				enqueue(t, s, 1)
				if _, err := s.Now(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := take(path+suffix, aside); err != nil {
					t.Fatal(err)
				}
				_, err := s.Enqueue(t.Context(), []store.EnqueueParams{params(2)})
				wantCode(t, err, job.CodeDatabaseUnavailable)
				if !strings.Contains(err.Error(), path+"-wal or runs.db-shm was moved, replaced or deleted") || errors.Is(err, store.ErrUnknown) {
					t.Errorf("the error is %v", err)
				}
				_, err = s.Now(t.Context())
				wantCode(t, err, job.CodeDatabaseUnavailable)

				if name != "deleted" {
					if err := os.Rename(aside, path+suffix); err != nil {
						t.Fatal(err)
					}
					enqueue(t, s, 3)
					if !exists(t, s, 3) {
						t.Error("put back, nothing can be written")
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				again := open(t, Config{Path: path})
				if !exists(t, again, 1) || exists(t, again, 2) || exists(t, again, 3) != (name != "deleted") {
					t.Error("opened again, it is not the database as it was answered")
				}
			})
		}
	}
}

// Of a process that may have no more files open, the folder is not to blame.
func TestTooManyOpenFilesAreNamed(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		err := Config{Path: "runs.db"}.translate(errors.Join(sqlite3.CANTOPEN, &os.PathError{Op: "open", Path: "runs.db", Err: errno}))
		wantCode(t, err, job.CodeDatabaseUnavailable)
		var coded *abi.Error
		if !errors.As(err, &coded) || !strings.Contains(coded.Fix, "ulimit") {
			t.Errorf("%+v", coded)
		}
	}
}
