package sqlite

import (
	"errors"
	"io/fs"
	"os"
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
