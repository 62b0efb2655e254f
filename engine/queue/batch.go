package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

const (
	// maxBatch bounds the entries of one write: enough to make a commit's
	// fsync cheap, few enough that the last entry waits only milliseconds.
	maxBatch = 512
	// maxBatchBytes bounds the payload of one write. One entry may exceed it.
	maxBatchBytes = 8 << 20
	// retryFloor and retryCeiling space the tries while a store is away.
	retryFloor   = 10 * time.Millisecond
	retryCeiling = time.Second
	// stallAfter is how long a batch is tried again in silence.
	stallAfter = time.Second
)

// batcher gathers the entries that arrive while a write is under way and sends
// them together in the next. Its writer is a goroutine that lives only while
// there is something to write, so a batcher needs neither start nor stop.
//
// An entry whose answer was lost, or that met a store which is away, is written
// again until its context ends: operations given to a batcher must be safe to
// repeat. An entry that the store refuses does not harm its neighbours, nor does
// one that somebody's transaction holds up: see putAside. An
// error is store.ErrUnknown if any of the tries may have done the operation.
type batcher[P, R any] struct {
	write   func(ctx context.Context, batch []P) ([]R, error)
	size    func(*P) int
	observe func(entries int)
	// later, if not nil, reports whether an entry may wait for company while others
	// are written: see take.
	later func(*P) bool
	again func(*P)      // if not nil, prepares an entry to be written once more
	limit time.Duration // of one write; 0 is writeTimeout
	// outlasts reports whether an error is waited out; nil is transient.
	outlasts func(error) bool
	// stalled, if not nil, hears of entries that have been waiting out err for
	// stallAfter, ever more rarely, and of the end of it with nil.
	stalled func(err error, entries int)
	// holding is stalled for entries that somebody's transaction holds up. It may not
	// call the batcher.
	holding func(err error, entries int)

	mu      sync.Mutex
	pending []entry[P, R]
	writing bool
	put     int             // writes that left entries for later
	trouble error           // of the last try; nil once one succeeds
	stall   error           // what entries have been waiting out for stallAfter
	aside   []held[P, R]    // out of the way of others
	asiding int             // writers of what is aside
	heldUp  int             // tries of entries alone since nothing was aside
	idle    []chan struct{} // closed when nothing is left to write
}

// entry is one operation and who waits for it. done is called once, from the
// writer, and must not block.
type entry[P, R any] struct {
	ctx  context.Context
	p    P
	done func(R, error)
}

// submit hands p over. done hears the answer, or the error that remained when
// ctx ended.
func (b *batcher[P, R]) submit(ctx context.Context, p P, done func(R, error)) {
	b.mu.Lock()
	b.pending = append(b.pending, entry[P, R]{ctx, p, done})
	start := !b.writing
	b.writing = true
	b.mu.Unlock()
	if start {
		go b.run()
	}
}

// do is submit for a caller who waits. When ctx ends first, the operation may
// still happen, as the error (ErrUnknown) says; it also says what the store has
// been in trouble with meanwhile, if it has.
func (b *batcher[P, R]) do(ctx context.Context, p P) (R, error) { return b.patient(ctx, ctx, p, nil) }

// patient is do for an operation that is given up when patience ends, but not in
// the middle of a try: one that makes headway is waited for until ctx ends. first,
// if not nil, hears the answer in any case, as done of submit does.
func (b *batcher[P, R]) patient(ctx, patience context.Context, p P, first func(R, error)) (R, error) {
	type answer struct {
		r   R
		err error
	}
	c := make(chan answer, 1)
	b.submit(patience, p, func(r R, err error) {
		if first != nil {
			first(r, err)
		}
		c <- answer{r, err}
	})
	select {
	case a := <-c:
		return a.r, a.err
	case <-ctx.Done():
		select {
		case a := <-c:
			return a.r, a.err
		default:
			var zero R
			b.mu.Lock()
			defer b.mu.Unlock()
			return zero, errors.Join(b.trouble, context.Cause(ctx), store.ErrUnknown)
		}
	}
}

// wait returns once nothing is pending or under way, or when ctx ends.
func (b *batcher[P, R]) wait(ctx context.Context) error {
	b.mu.Lock()
	if !b.busy() {
		b.mu.Unlock()
		return nil
	}
	c := make(chan struct{})
	b.idle = append(b.idle, c)
	b.mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run writes until nothing is pending.
func (b *batcher[P, R]) run() {
	var batch []entry[P, R]
	for {
		b.mu.Lock()
		batch = b.take(batch[:0])
		if len(batch) == 0 {
			b.writing = false
			b.rest()
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		b.send(batch, false)
		clear(batch)
	}
}

// take moves what fits one write from pending to batch. With mu held.
func (b *batcher[P, R]) take(batch []entry[P, R]) []entry[P, R] {
	if b.later != nil && b.put < maxPut {
		if some := b.urgent(batch); len(some) > 0 {
			return some
		}
	}
	b.put = 0
	n, bytes := 0, 0
	for n < len(b.pending) && n < maxBatch {
		bytes += b.size(&b.pending[n].p)
		if n > 0 && bytes > maxBatchBytes {
			break
		}
		n++
	}
	batch = append(batch, b.pending[:n]...)
	rest := copy(b.pending, b.pending[n:])
	clear(b.pending[rest:])
	b.pending = b.pending[:rest]
	return batch
}

const (
	// maxPut is how many writes an entry for later waits out at most.
	maxPut = 3
	// company is how many entries for later are worth what they add to a write.
	company = 16
)

// urgent moves what cannot wait from pending to batch, if only a few can: what they
// add to a write costs as much for one as for many, and the others would wait for
// it, too. It moves nothing if all is to be written. With mu held.
func (b *batcher[P, R]) urgent(batch []entry[P, R]) []entry[P, R] {
	waits, bytes := 0, 0
	for i := range b.pending {
		if b.later(&b.pending[i].p) {
			waits++
		}
		bytes += b.size(&b.pending[i].p)
	}
	if waits == 0 || waits >= company || waits == len(b.pending) || len(b.pending) > maxBatch || bytes > maxBatchBytes {
		return nil
	}
	b.put++
	left := b.pending[:0]
	for _, e := range b.pending {
		if b.later(&e.p) {
			left = append(left, e)
		} else {
			batch = append(batch, e)
		}
	}
	clear(b.pending[len(left):])
	b.pending = left
	return batch
}

// send writes batch and answers each entry. unsure says that an earlier try may
// have done it.
func (b *batcher[P, R]) send(batch []entry[P, R], unsure bool) {
	backoff := loop.Backoff{Floor: retryFloor, Ceiling: retryCeiling}
	params := make([]P, 0, len(batch))
	var since time.Time // of the first try that is waited out
	loud := 0
	defer func() {
		if loud > 0 {
			b.stallEnds()
		}
	}()
	for len(batch) > 0 {
		params = params[:0]
		for i := range batch {
			params = append(params, batch[i].p)
		}
		results, err := b.try(params)
		b.mu.Lock()
		b.trouble = err
		b.mu.Unlock()
		if err == nil {
			b.observe(len(batch))
			for i := range batch {
				batch[i].done(results[i], nil)
			}
			return
		}
		unsure = unsure || errors.Is(err, store.ErrUnknown) || errors.Is(err, context.DeadlineExceeded)
		if b.again != nil {
			for i := range batch {
				b.again(&batch[i].p)
			}
		}
		if errors.Is(err, store.ErrHeld) {
			b.putAside(batch, err, unsure)
			return
		}
		if !b.waitsOut(err) {
			b.alone(batch, err, unsure)
			return
		}
		if batch = gaveUp(batch, err, unsure); len(batch) > 0 {
			if since.IsZero() {
				since = time.Now()
			} else if time.Since(since) >= stallAfter {
				loud++
				b.stalls(err, len(batch), loud)
			}
			time.Sleep(backoff.Next())
			batch = gaveUp(batch, err, unsure)
		}
	}
}

// stalls notes that entries still wait for what err says is over.
func (b *batcher[P, R]) stalls(err error, entries, inARow int) {
	b.mu.Lock()
	b.stall = err
	b.mu.Unlock()
	if b.stalled != nil && loop.Loud(inARow) {
		b.stalled(err, entries)
	}
}

// stallEnds notes that nothing waits any more: it was written, or given up.
func (b *batcher[P, R]) stallEnds() {
	b.mu.Lock()
	b.stall = nil
	b.mu.Unlock()
	if b.stalled != nil {
		b.stalled(nil, 0)
	}
}

// stuck is what entries have been waiting out for stallAfter; nil if none have.
func (b *batcher[P, R]) stuck() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stall
}

func (b *batcher[P, R]) waitsOut(err error) bool {
	if b.outlasts == nil {
		return transient(err)
	}
	return b.outlasts(err)
}

// try is one write. It has a context of its own: entries of several callers
// share it, and none of them may end it for the others.
func (b *batcher[P, R]) try(params []P) ([]R, error) {
	limit := b.limit
	if limit == 0 {
		limit = writeTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	results, err := b.write(store.Brisk(ctx), params)
	if err == nil && len(results) != len(params) {
		return nil, &abi.Error{Code: job.CodeInternal, Message: "the store answered another number of results than it was given entries"}
	}
	return results, err
}

// writeTimeout ends a write on a connection that is dead without saying so.
const writeTimeout = 15 * time.Second

// alone finds the entry that made the store refuse a whole batch with err.
func (b *batcher[P, R]) alone(batch []entry[P, R], err error, unsure bool) {
	if len(batch) == 1 {
		var zero R
		batch[0].done(zero, doubted(err, unsure))
		return
	}
	for i := range batch {
		b.send(batch[i:i+1], unsure)
	}
}

// doubted is err, as ErrUnknown if a try before it may have done the operation.
func doubted(err error, unsure bool) error {
	if unsure && !errors.Is(err, store.ErrUnknown) {
		return errors.Join(err, store.ErrUnknown)
	}
	return err
}

// gaveUp answers the entries whose context has ended with err and returns the
// others.
func gaveUp[P, R any](batch []entry[P, R], err error, unsure bool) []entry[P, R] {
	var zero R
	left := batch[:0]
	for _, e := range batch {
		if e.ctx.Err() != nil {
			e.done(zero, doubted(err, unsure))
			continue
		}
		left = append(left, e)
	}
	return left
}

// mendable reports whether err is the database's and no entry's, so that a repeat
// succeeds once a person has dealt with it. What is known about an attempt waits
// for that as long as the lease lasts; who asks for something new is told instead.
func mendable(err error) bool {
	switch abi.CodeOf(err) {
	case job.CodeDatabaseDenied, job.CodeDatabaseFull, job.CodeDatabaseMissing, job.CodeDatabaseReadOnly, job.CodeDatabaseSchema:
		return true
	}
	return transient(err)
}

// transient reports whether a repeat may succeed where err was the answer.
func transient(err error) bool {
	if errors.Is(err, store.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch abi.CodeOf(err) {
	case job.CodeDatabaseBusy, job.CodeDatabaseUnavailable:
		return true
	}
	return false
}
