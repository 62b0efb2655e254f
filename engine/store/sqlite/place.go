package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// errMoved says that what is at the database's path is not what was opened.
var errMoved = errors.New("the open file is not at its path")

// place is where a store's database was when it was opened. SQLite goes on with a
// file that was taken away, which nobody will find again, and beside it with a
// log that may by now belong to another database.
type place struct {
	path string
	file os.FileInfo // nil until it is known
}

// note keeps what is there now. Before anybody checks.
func (p *place) note() (err error) {
	p.file, err = os.Stat(p.path)
	return err
}

// check answers errMoved unless that is still there. Safe for concurrent use.
func (p *place) check() error {
	if p == nil || p.file == nil {
		return nil
	}
	now, err := os.Stat(p.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(p.file, now) {
		return errMoved
	}
	return err
}

// checkNames refuses a file that has several names (hard links): the log, its
// index and the lock of whoever serves are found by the file's name, so two
// processes that open it by two names damage it. A symbolic link is one name.
func (c *Config) checkNames() error {
	if c.memory() {
		return nil
	}
	info, err := os.Stat(c.Path)
	if err != nil {
		return nil // whoever opens it says so
	}
	n := names(info)
	if n <= 1 {
		return nil
	}
	return &abi.Error{
		Code:    job.CodeDatabaseUnavailable,
		Message: fmt.Sprintf("%s has %d names (hard links), and opening it by two of them would damage it", c.Path, n),
		Fix:     "remove all names but one, which `find -samefile " + c.Path + "` lists; use a symbolic link instead",
	}
}
