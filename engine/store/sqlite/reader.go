package sqlite

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/ncruces/go-sqlite3"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// readers is a pool of reading connections, opened when first needed.
type readers struct {
	cfg  *Config
	free chan *conn // nil: may be opened

	mu     sync.RWMutex // held for reading during a read
	closed bool
}

func newReaders(cfg *Config) *readers {
	r := &readers{cfg: cfg, free: make(chan *conn, cfg.Readers)}
	for range cfg.Readers {
		r.free <- nil
	}
	return r
}

// do runs read on a connection of its own until ctx ends, which interrupts it.
func (r *readers) do(ctx context.Context, read func(c *conn) error) (err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return errClosed
	}
	var c *conn
	select {
	case c = <-r.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() {
		if p := recover(); p != nil {
			// The driver panics when a connection's memory is exhausted.
			err = &abi.Error{
				Code: job.CodeDatabaseUnavailable, Message: fmt.Sprintf("a read of %s failed: %v", r.cfg.Path, p),
				Err: fmt.Errorf("%v\n%s", p, debug.Stack()),
			}
			if c != nil {
				if cerr := c.abandon(); cerr != nil {
					r.cfg.Logger.Warn("store.sqlite.connection_leaked", "path", r.cfg.Path, "error", cerr)
				}
				c = nil
			}
		}
		r.free <- c
	}()
	if err := r.cfg.place.check(); err != nil {
		return r.cfg.translate(err)
	}
	if c == nil {
		if c, err = openConn(*r.cfg, sqlite3.OPEN_READWRITE); err != nil {
			c = nil
			return r.cfg.translate(err)
		}
	}
	c.db.SetInterrupt(ctx)
	err = read(c)
	c.db.SetInterrupt(context.Background())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.cfg.translate(err)
}

// close waits for reads under way and closes the connections.
func (r *readers) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	for range r.cfg.Readers {
		if c := <-r.free; c != nil {
			c.close()
		}
	}
}

// snapshot runs several reads on one state of the database.
func (c *conn) snapshot(reads func() error) error {
	if !c.db.GetAutocommit() {
		return reads() // an op of the writer: in a transaction already
	}
	begin := c.use(qBeginRead)
	if err := begin.exec(); err != nil {
		return err
	}
	err := reads()
	end := c.use(qRollback)
	if rerr := end.exec(); err == nil {
		err = rerr
	}
	return err
}

var qBeginRead = named("begin_read")
