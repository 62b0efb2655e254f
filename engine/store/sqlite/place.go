package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// What is at the path of the database, or at that of its log or the log's index,
// is not what was opened.
var (
	errMoved    = errors.New("the open file is not at its path")
	errLogMoved = errors.New("the open log is not at its path")
)

// place is where a store's database was when it was opened. SQLite goes on with a
// file that was taken away, which nobody will find again, and beside it with a
// log that may by now belong to another database. With a log or an index of its
// own, every process would see and write a database of its own.
type place struct {
	path string
	file os.FileInfo              // nil until it is known
	log  atomic.Pointer[[]logged] // nil while no connection keeps the log where it is
}

// logged is a file that SQLite keeps beside the database while somebody has that
// open: until then no process removes it.
type logged struct {
	path string
	file os.FileInfo
}

// note keeps what is there now. Before anybody checks.
func (p *place) note() (err error) {
	p.file, err = os.Stat(p.path)
	return err
}

// noteLog keeps what the writing connection, which is open and has read, has of a log.
func (p *place) noteLog() {
	if p == nil {
		return
	}
	var log []logged
	for _, suffix := range []string{"-wal", "-shm"} {
		if file, err := os.Stat(p.path + suffix); err == nil { // not every system has both
			log = append(log, logged{p.path + suffix, file})
		}
	}
	p.log.Store(&log)
}

// forgetLog says that the writing connection is lost: the log may go.
func (p *place) forgetLog() {
	if p != nil {
		p.log.Store(nil)
	}
}

// check answers errMoved or errLogMoved unless that is still there. Safe for
// concurrent use.
func (p *place) check() error {
	if p == nil || p.file == nil {
		return nil
	}
	if err := still(p.path, p.file, errMoved); err != nil {
		return err
	}
	if log := p.log.Load(); log != nil {
		for _, l := range *log {
			if err := still(l.path, l.file, errLogMoved); err != nil {
				return err
			}
		}
	}
	return nil
}

// still answers moved unless what is at path is file.
func still(path string, file os.FileInfo, moved error) error {
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(file, now) {
		return moved
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
