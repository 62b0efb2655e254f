package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// conn is one connection with its prepared statements. Not safe for concurrent
// use.
type conn struct {
	db    *sqlite3.Conn
	stmts []*sqlite3.Stmt // by statement.index; nil until first used
}

// maxMemoryDB bounds a database in memory, which lives inside its connection's
// linear memory: address space, not use. A file's connection keeps the driver's
// 256 MiB.
const maxMemoryDB = 2 << 30

// openConn opens the database with flags and the settings that hold for every
// connection. Its errors are the driver's.
func openConn(cfg Config, flags sqlite3.OpenFlag) (*conn, error) {
	var db *sqlite3.Conn
	var err error
	if cfg.memory() {
		db, err = sqlite3.OpenContext(sqlite3.WithMaxMemory(context.Background(), maxMemoryDB), Memory)
	} else {
		db, err = sqlite3.OpenFlags(cfg.uri(), flags)
	}
	if err != nil {
		return nil, err
	}
	c := &conn{db: db, stmts: make([]*sqlite3.Stmt, len(statements))}
	// Plans must not depend on bound values: SQLite would prepare a statement
	// again whenever they change.
	_, err = db.Config(sqlite3.DBCONFIG_ENABLE_QPSG, true)
	err = errors.Join(err,
		db.BusyTimeout(cfg.BusyTimeout),
		db.Exec(`PRAGMA trusted_schema=OFF; PRAGMA foreign_keys=OFF; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-16384`),
	)
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close gives the connection's memory back, which the driver does only when no
// statement is open: not even one that a panic left behind.
func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	err := c.db.Close()
	if errors.Is(err, sqlite3.BUSY) {
		for _, s := range slices.Collect(c.db.Stmts()) {
			errs = append(errs, s.Close())
		}
		err = c.db.Close()
	}
	return errors.Join(append(errs, err)...)
}

// abandon closes a connection on which the driver has panicked, and may again.
func (c *conn) abandon() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while closing: %v", p)
		}
	}()
	return c.close()
}

// pragma reads one integer.
func (c *conn) pragma(name string) (int64, error) {
	s, _, err := c.db.Prepare("PRAGMA " + name)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	var v int64
	if s.Step() {
		v = s.ColumnInt64(0)
	}
	return v, s.Err()
}

// call is one use of a statement: bind its parameters in order, then exec, or
// step until false and end. The first error sticks and is what end returns.
type call struct {
	c   *conn
	s   *sqlite3.Stmt
	n   int
	err error
}

// use prepares st, or takes it from the cache.
func (c *conn) use(st *statement) call {
	s := c.stmts[st.index]
	if s == nil {
		var err error
		if s, _, err = c.db.PrepareFlags(st.text, sqlite3.PREPARE_PERSISTENT); err != nil {
			return call{c: c, err: fmt.Errorf("prepare %s: %w", st.name, err)}
		}
		c.stmts[st.index] = s
	}
	return call{c: c, s: s}
}

func (q *call) text(v string) {
	q.n++
	if q.err == nil {
		q.err = q.s.BindText(q.n, v)
	}
}

// textOrNull binds NULL for "".
func (q *call) textOrNull(v string) {
	if v == "" {
		q.null()
		return
	}
	q.text(v)
}

func (q *call) int(v int64) {
	q.n++
	if q.err == nil {
		q.err = q.s.BindInt64(q.n, v)
	}
}

func (q *call) bool(v bool) {
	if v {
		q.int(1)
	} else {
		q.int(0)
	}
}

// ms binds an instant, NULL for 0.
func (q *call) ms(v int64) {
	if v == 0 {
		q.null()
		return
	}
	q.int(v)
}

// blob binds bytes; nil is an empty blob, never NULL.
func (q *call) blob(v []byte) {
	q.n++
	if q.err != nil {
		return
	}
	if len(v) == 0 {
		q.err = q.s.BindZeroBlob(q.n, 0)
		return
	}
	q.err = q.s.BindBlob(q.n, v)
}

func (q *call) null() {
	q.n++
	if q.err == nil {
		q.err = q.s.BindNull(q.n)
	}
}

// exec runs a statement that answers no rows.
func (q *call) exec() error {
	if q.err != nil {
		return q.err
	}
	return q.s.Exec()
}

// step moves to the next row.
func (q *call) step() bool {
	if q.err != nil {
		return false
	}
	if q.s.Step() {
		return true
	}
	q.err = q.s.Err()
	return false
}

// end makes the statement ready for its next use and returns what went wrong.
func (q *call) end() error {
	if q.s == nil {
		return q.err
	}
	if err := q.s.Reset(); q.err == nil {
		q.err = err
	}
	return q.err
}

func (q *call) colInt(i int) int64   { return q.s.ColumnInt64(i) }
func (q *call) colText(i int) string { return q.s.ColumnText(i) }

// colBlob copies; NULL and the empty blob are nil.
func (q *call) colBlob(i int) []byte { return q.s.ColumnBlob(i, nil) }

func (q *call) colTime(i int) time.Time { return fromMS(q.s.ColumnInt64(i)) }

// fromMS is the instant of ms; 0, which is also what NULL reads as, is the zero
// time.
func fromMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// toMS is ms of t; 0 for the zero time.
func toMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
