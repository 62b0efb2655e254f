package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// errHeld is what lockFile answers when another process has the lock.
var errHeld = errors.New("held by another process")

// LockServe takes the worker's lock of the database at path: one process at a
// time claims its runs, while others may enqueue and list. The lock is on a file
// of its own beside the database and ends with the process, however that ends.
// Who holds it may register as Alone. A database in memory needs no lock.
//
// Errors: X_DATABASE_BUSY, naming the process that holds it;
// X_DATABASE_UNAVAILABLE when the lock file cannot be used.
func LockServe(path string) (release func() error, err error) {
	if path == Memory {
		return func() error { return nil }, nil
	}
	// Two names of one file must meet in one lock.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, &abi.Error{
			Code: job.CodeDatabaseUnavailable, Message: fmt.Sprintf("the lock file %s cannot be opened: %v", name, err),
			Fix: "give this user write permission on " + filepath.Dir(name), Err: err,
		}
	}
	if err := lockFile(f); err != nil {
		defer f.Close()
		if !errors.Is(err, errHeld) {
			return nil, &abi.Error{
				Code: job.CodeDatabaseUnavailable, Message: fmt.Sprintf("%s cannot be locked: %v", name, err),
				Fix: "keep the database on a local disk", Err: err,
			}
		}
		return nil, &abi.Error{
			Code:    job.CodeDatabaseBusy,
			Message: fmt.Sprintf("%s serves %s already", holder(f), path),
			Fix:     "stop that process first, or give this one another database; a fleet of workers needs Postgres",
		}
	}
	// For people who look, and for holder.
	err = errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n"))
	if err != nil {
		f.Close()
		return nil, &abi.Error{
			Code: job.CodeDatabaseUnavailable, Message: fmt.Sprintf("%s cannot be written: %v", name, err), Err: err,
		}
	}
	// The file stays: removing it would let two processes lock two files of
	// one name.
	return f.Close, nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// holder names the process that wrote the lock file.
func holder(f *os.File) string {
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}
