package sqlite

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/ncruces/go-sqlite3"

	"github.com/jobrunner/runner/engine/internal/hub"
	"github.com/jobrunner/runner/engine/store"
)

// Store keeps runs in one SQLite database. It is safe for concurrent use.
type Store struct {
	cfg     Config
	w       *writer
	r       *readers // nil for a database in memory, whose reads are ops
	hub     *hub.Hub
	closing chan struct{}
	polling sync.WaitGroup
	once    sync.Once
	bounds  store.StatsBounds
}

var _ store.Store = (*Store)(nil)

// Open opens a database whose schema this build knows.
//
// Errors, all of them *abi.Error: X_DATABASE_MISSING without a file and without
// Create; X_DATABASE_SCHEMA for an empty, older, newer or foreign database;
// X_DATABASE_READONLY, X_DATABASE_BUSY, X_DATABASE_CORRUPT,
// X_DATABASE_UNAVAILABLE; X_INVALID for the Config.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !cfg.memory() {
		cfg.place = &place{path: cfg.Path}
	}
	s := &Store{cfg: cfg, hub: hub.New(), closing: make(chan struct{}), bounds: store.DefaultStatsBounds()}
	c, err := openChecked(&s.cfg)
	if err == nil && !cfg.memory() {
		if err = cfg.place.note(); err != nil {
			c.close()
		}
		cfg.place.noteLog()
	}
	if err != nil {
		return nil, s.cfg.translate(err)
	}
	s.w = startWriter(&s.cfg, c, func() (*conn, error) { return reopenWriter(s.cfg) }, func(queues map[string]struct{}) { s.hub.Post(maps.Keys(queues)) })
	if !cfg.memory() {
		s.r = newReaders(&s.cfg)
	}
	return s, nil
}

// openWriter opens a connection that can write.
func openWriter(cfg Config) (*conn, error) {
	c, err := openConn(cfg, sqlite3.OPEN_READWRITE)
	if err != nil {
		return nil, err
	}
	if readOnly, ok := c.db.ReadOnly("main"); ok && readOnly {
		c.close()
		return nil, sqlite3.READONLY
	}
	return c, nil
}

// reopenWriter opens a connection in the place of one that was lost.
func reopenWriter(cfg Config) (*conn, error) {
	c, err := openWriter(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.setDurable(); err != nil {
		c.close()
		return nil, err
	}
	cfg.place.noteLog()
	return c, nil
}

// setDurable puts the database in WAL mode, which stays with the file, and has
// this connection sync every commit.
//
// A checkpoint runs in the commit that brings the log to 4,000 pages (16 MB):
// rarer checkpoints copy a hot page fewer times, but keep a longer log to read
// through and stall the commit that pays for them longer.
func (c *conn) setDurable() error {
	return c.db.Exec(`PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000`)
}

// Name implements store.Store.
func (s *Store) Name() string { return "sqlite" }

// Close implements store.Store.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closing)
		s.polling.Wait()
		if s.r != nil {
			s.r.close()
		}
		err = s.w.close()
		s.hub.Close()
	})
	if errors.Is(err, sqlite3.BUSY) {
		err = nil // the checkpoint at the end is left to whoever still has the file open
	}
	return s.cfg.translate(err)
}

// read runs a read where it sees every commit that was answered.
func (s *Store) read(ctx context.Context, read func(c *conn) error) error {
	if s.r != nil {
		return s.r.do(ctx, read)
	}
	return s.w.do(ctx, func(tx *tx) error { return read(tx.conn) })
}
