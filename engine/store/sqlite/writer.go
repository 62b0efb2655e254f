package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/ncruces/go-sqlite3"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// maxGroup bounds the ops of one commit, so that the first of them does not
// wait for hundreds of others. Far fewer wait at a time in practice: it takes
// as many callers.
const maxGroup = 512

// op is one write on its way through the writer. run may run more than once,
// each time on a transaction that holds nothing of the time before, so it
// assigns its results afresh and touches nothing outside tx.
type op struct {
	run  func(tx *tx) error
	lazy bool // may be answered before it is synced
	err  error
	done chan struct{} // one value when err may be read
}

// tx is what an op sees of its transaction.
type tx struct {
	*conn
	cfg    *Config
	now    int64 // the op's instant, in ms
	group  *group
	rotate *rotation
}

// group collects what the ops of one transaction leave to be done with it.
type group struct {
	ended map[endedKey]int64 // changes of the queues' counts of finished runs
	wakes map[string]struct{}
}

type endedKey struct {
	queue string
	state job.State
}

// wake notes that a run of queue became ready.
func (g *group) wake(queue string) {
	if g.wakes == nil {
		g.wakes = map[string]struct{}{}
	}
	g.wakes[queue] = struct{}{}
}

// count notes that n runs of queue came to a terminal state, or left it.
func (g *group) count(queue string, state job.State, n int64) {
	if g.ended == nil {
		g.ended = map[endedKey]int64{}
	}
	g.ended[endedKey{queue, state}] += n
}

// writer owns the writing connection. Its goroutine is the only one that
// touches c, rotate, broken and durability until it has returned.
type writer struct {
	cfg    *Config
	c      *conn // nil after it was lost
	reopen func() (*conn, error)
	broken error // set when a connection in memory was lost: nothing can bring it back
	rotate *rotation
	onWake func(queues map[string]struct{})

	durability

	kick loop.Signal   // one value when pending is not empty
	end  chan struct{} // closed when the goroutine has returned

	ops sync.Pool // of *op, used up

	mu      sync.Mutex
	pending []*op
	closed  bool
}

func startWriter(cfg *Config, c *conn, reopen func() (*conn, error), onWake func(map[string]struct{})) *writer {
	w := &writer{
		cfg: cfg, c: c, reopen: reopen, onWake: onWake, rotate: newRotation(),
		kick: loop.NewSignal(), end: make(chan struct{}),
	}
	go w.loop()
	return w
}

// newOp takes an op that is used up, or makes one. They are kept per writer, not
// per process: a channel made in a testing/synctest bubble must not leave it.
func (w *writer) newOp() *op {
	if o, ok := w.ops.Get().(*op); ok {
		return o
	}
	return &op{done: make(chan struct{}, 1)}
}

// do has run executed in a transaction and returns once that is on disk. A
// context that ends while the op waits withdraws it; one that ends later is too
// late, and do waits for the answer, since an answer that is thrown away would
// leave claimed runs with nobody.
func (w *writer) do(ctx context.Context, run func(tx *tx) error) error {
	return w.submit(ctx, false, run)
}

// doLazy is do for what a power cut may take back for as long as syncLag, since
// it takes the asker with it.
func (w *writer) doLazy(ctx context.Context, run func(tx *tx) error) error {
	return w.submit(ctx, true, run)
}

func (w *writer) submit(ctx context.Context, lazy bool, run func(tx *tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := w.newOp()
	o.run, o.lazy, o.err = run, lazy, nil
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return errClosed
	}
	w.pending = append(w.pending, o)
	w.mu.Unlock()
	w.signal()
	select {
	case <-o.done:
	case <-ctx.Done():
		if w.withdraw(o) {
			return ctx.Err()
		}
		<-o.done
	}
	err := o.err
	o.run = nil
	w.ops.Put(o)
	return err
}

func (w *writer) signal() {
	w.kick.Give()
}

// withdraw removes an op that the writer has not taken yet.
func (w *writer) withdraw(o *op) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, p := range w.pending {
		if p == o {
			w.pending = append(w.pending[:i], w.pending[i+1:]...)
			return true
		}
	}
	return false
}

// close refuses further ops, lets the waiting ones finish and closes the
// connection.
func (w *writer) close() error {
	w.mu.Lock()
	already := w.closed
	w.closed = true
	w.mu.Unlock()
	if already {
		<-w.end
		return nil
	}
	w.signal()
	<-w.end
	if w.c == nil {
		return nil
	}
	return w.c.close()
}

func (w *writer) loop() {
	defer close(w.end)
	var batch []*op
	for {
		w.wait()
		for {
			w.mu.Lock()
			batch = append(batch[:0], w.pending[:min(len(w.pending), maxGroup)]...)
			rest := copy(w.pending, w.pending[len(batch):])
			clear(w.pending[rest:])
			w.pending = w.pending[:rest]
			closed := w.closed
			w.mu.Unlock()
			if len(batch) == 0 {
				if closed {
					w.syncLate()
					return
				}
				break
			}
			w.commit(batch)
			for i, o := range batch {
				batch[i] = nil
				o.done <- struct{}{}
			}
			if len(batch) > 1 {
				// Whoever was answered may write again at once: letting them
				// halves the commits where callers would take turns.
				runtime.Gosched()
			}
		}
	}
}

// commit runs ops in one transaction, or, if one of them fails, each in its
// own, and leaves each op's outcome in it.
func (w *writer) commit(ops []*op) {
	g, err := w.try(ops)
	switch {
	case err == nil:
		if len(g.wakes) > 0 {
			w.onWake(g.wakes)
		}
	case len(ops) == 1 || errors.Is(err, sqlite3.BUSY) || errors.Is(err, store.ErrUnknown) || w.broken != nil:
		for _, o := range ops {
			o.err = err
		}
	default:
		for i := range ops {
			w.commit(ops[i : i+1])
		}
	}
}

// try runs ops in one transaction. An error means that nothing of it happened
// (or, with ErrUnknown, perhaps all): the ops' own outcomes are void. Refusals
// of ops that wrote nothing are no error here.
func (w *writer) try(ops []*op) (g *group, err error) {
	if w.broken != nil {
		return nil, w.broken
	}
	if err := w.cfg.place.check(); err != nil {
		return nil, w.cfg.translate(err)
	}
	if w.c == nil {
		if w.c, err = w.reopen(); err != nil {
			return nil, w.cfg.translate(err)
		}
	}
	committing := false
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
			w.lost(err)
			err = &abi.Error{Code: job.CodeDatabaseUnavailable, Message: fmt.Sprintf("the SQLite connection to %s failed: %v", w.cfg.Path, p), Err: err}
			if committing {
				err = errors.Join(store.ErrUnknown, err)
			}
		}
	}()
	if err := w.prepareSync(ops); err != nil {
		return nil, w.cfg.translate(err)
	}
	begin := w.c.use(qBegin)
	if err := begin.exec(); err != nil {
		return nil, w.fail(err)
	}
	g = &group{}
	tx := &tx{conn: w.c, cfg: w.cfg, group: g, rotate: w.rotate}
	for _, o := range ops {
		before := w.c.db.TotalChanges()
		tx.now = w.cfg.Clock().UnixMilli()
		o.err = o.run(tx)
		if o.err != nil && (!refusal(o.err) || w.c.db.TotalChanges() != before) {
			return nil, w.fail(o.err)
		}
	}
	if err := tx.flushCounts(); err != nil {
		return nil, w.fail(err)
	}
	committing = true
	commit := w.c.use(qCommit)
	if err := commit.exec(); err != nil {
		w.suspect = w.suspect || errors.Is(err, sqlite3.IOERR)
		translated := w.fail(err)
		// A transaction whose last page could not be written is void. One that
		// could not be synced is undone here as well, but a crash before the
		// next commit could bring it back from the log.
		if errors.Is(err, sqlite3.IOERR) && !errors.Is(err, sqlite3.IOERR_WRITE) {
			return nil, errors.Join(store.ErrUnknown, translated)
		}
		return nil, translated
	}
	w.committed()
	return g, nil
}

// refusal reports whether an op answered with an error of its own, rather than
// the driver with one.
func refusal(err error) bool {
	var coded *abi.Error
	return errors.As(err, &coded) && coded.Err == nil
}

// fail ends a transaction that cannot go on and returns err with its code.
func (w *writer) fail(err error) error {
	if !w.c.db.GetAutocommit() {
		rollback := w.c.use(qRollback)
		if rerr := rollback.exec(); rerr != nil {
			w.lost(errors.Join(err, rerr))
		}
	}
	return w.cfg.translate(err)
}

// lost gives up a connection whose state is not known any more; the next group
// opens another.
func (w *writer) lost(cause error) {
	w.cfg.Logger.Error("store.sqlite.connection_lost", "path", w.cfg.Path, "error", cause)
	w.cfg.place.forgetLog()
	if err := w.c.abandon(); err != nil {
		w.cfg.Logger.Warn("store.sqlite.connection_leaked", "path", w.cfg.Path, "error", err)
	}
	w.c, w.durability = nil, durability{suspect: true}
	if w.cfg.memory() {
		w.broken = &abi.Error{Code: job.CodeDatabaseUnavailable, Message: "the database in memory was lost", Err: cause}
	}
}

// flushCounts moves the queues' counts of finished runs within the transaction.
func (t *tx) flushCounts() error {
	type counts struct{ done, failed, dead, cancelled int64 }
	byQueue := map[string]counts{}
	for k, n := range t.group.ended {
		c := byQueue[k.queue]
		switch k.state {
		case job.Done:
			c.done += n
		case job.Failed:
			c.failed += n
		case job.Dead:
			c.dead += n
		case job.Cancelled:
			c.cancelled += n
		}
		byQueue[k.queue] = c
	}
	for queue, c := range byQueue {
		q := t.use(qCountEnded)
		q.text(queue)
		q.int(c.done)
		q.int(c.failed)
		q.int(c.dead)
		q.int(c.cancelled)
		if err := q.exec(); err != nil {
			return err
		}
	}
	return nil
}

var (
	qBegin      = named("begin")
	qCommit     = named("commit")
	qRollback   = named("rollback")
	qCountEnded = named("count_ended")
)
