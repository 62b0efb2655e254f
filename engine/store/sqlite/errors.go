package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/ncruces/go-sqlite3"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// errClosed is what methods answer after Close.
var errClosed = &abi.Error{Code: job.CodeDatabaseUnavailable, Message: "the store is closed"}

// translate turns an error of the driver into one with a code, naming the
// database. Errors that already have a code, and those of a context, pass.
func (c Config) translate(err error) error {
	var coded *abi.Error
	if err == nil || errors.As(err, &coded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := &abi.Error{Err: err}
	dir := filepath.Dir(c.Path)
	switch {
	case errors.Is(err, errMoved):
		e.Code = job.CodeDatabaseUnavailable
		e.Message = fmt.Sprintf("%s was moved, replaced or deleted while it was open", c.Path)
		e.Fix = "put the file back, and this process goes on; or, if another file is meant, stop this process and start one on that"
	case errors.Is(err, errLogMoved):
		e.Code = job.CodeDatabaseUnavailable
		e.Message = fmt.Sprintf("%s-wal or %s-shm was moved, replaced or deleted while the database was open", c.Path, filepath.Base(c.Path))
		e.Fix = "run no other command on it; put the file back, and this process goes on; or stop this process, which then puts what it has written into the database"
	case errors.Is(err, sqlite3.BUSY), errors.Is(err, sqlite3.LOCKED):
		e.Code = job.CodeDatabaseBusy
		e.Message = fmt.Sprintf("another process kept %s locked for longer than %s", c.Path, c.BusyTimeout)
		e.Fix = "see who holds it with `fuser " + c.Path + "`; a backup or a shell with an open transaction is the usual cause"
	case errors.Is(err, sqlite3.READONLY), errors.Is(err, fs.ErrPermission):
		e.Code = job.CodeDatabaseReadOnly
		e.Message = fmt.Sprintf("%s cannot be written", c.Path)
		e.Fix = "give this user write permission on the file and on its folder " + dir + ", where SQLite keeps its log"
	case errors.Is(err, sqlite3.FULL):
		e.Code = job.CodeDatabaseFull
		e.Message = fmt.Sprintf("no space left for %s", c.Path)
		e.Fix = "free space on the disk of " + dir + "; nothing that was answered is lost, and writes go on when there is space"
	case errors.Is(err, sqlite3.NOTADB):
		e.Code = job.CodeDatabaseCorrupt
		e.Message = fmt.Sprintf("%s is not a SQLite database", c.Path)
		e.Fix = "check the path; if it is the right file, restore it from a backup"
	case errors.Is(err, sqlite3.CORRUPT):
		e.Code = job.CodeDatabaseCorrupt
		e.Message = fmt.Sprintf("%s is damaged: %v", c.Path, err)
		e.Fix = "stop the runner, keep a copy of the file with its -wal, and restore a backup or try `sqlite3 " + c.Path + " .recover`"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		e.Code = job.CodeDatabaseUnavailable
		e.Message = fmt.Sprintf("%s cannot be opened: too many open files", c.Path)
		e.Fix = "let this process have more (ulimit -n, LimitNOFILE= of systemd)"
	case errors.Is(err, sqlite3.CANTOPEN):
		e.Code = job.CodeDatabaseUnavailable
		e.Message = fmt.Sprintf("%s cannot be opened: %v", c.Path, err)
		e.Fix = "check that " + dir + " exists and that this user may read and write there"
	case errors.Is(err, sqlite3.IOERR):
		e.Code = job.CodeDatabaseUnavailable
		e.Message = fmt.Sprintf("reading or writing %s failed: %v", c.Path, err)
		e.Fix = "check the disk and the system's log"
	case errors.Is(err, sqlite3.INTERRUPT):
		e.Code = job.CodeDatabaseUnavailable
		e.Message = "the read was interrupted"
	default:
		e.Code = job.CodeInternal
		e.Message = fmt.Sprintf("%s: %v", c.Path, err)
	}
	return e
}

// errRowStatus refuses one row that another build wrote.
func errRowStatus(table, column, value, id string) error {
	return &abi.Error{
		Code:    job.CodeRowStatusUnknown,
		Message: fmt.Sprintf("%s.%s of run %s is %q, which this build does not know", table, column, id, value),
		Fix:     "upgrade this runner to the version that wrote the row",
	}
}
