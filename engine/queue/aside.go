package queue

import (
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
)

const (
	// asideWriters is how many writes at once may wait for a transaction of somebody
	// else. Each has a connection meanwhile.
	asideWriters = 2
	// asideParts is into how many a batch is split of which some entry is held up:
	// two rounds find one among 64, and each costs as long as a store waits.
	asideParts = 8
	// asidePause spaces the tries of an entry.
	asidePause = 100 * time.Millisecond
)

// held are entries of which one or more met store.ErrHeld.
type held[P, R any] struct {
	batch  []entry[P, R]
	err    error
	unsure bool
}

// putAside takes a batch out of the way of all others. Whoever holds up one of its
// entries may do so for minutes, and what has nothing to do with that must not wait
// for it. What is put aside is written in parts by writers of its own, and what is
// still held up then, alone.
func (b *batcher[P, R]) putAside(batch []entry[P, R], err error, unsure bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	part := (len(batch) + asideParts - 1) / asideParts
	for len(batch) > 0 {
		n := min(part, len(batch))
		b.aside = append(b.aside, held[P, R]{append([]entry[P, R](nil), batch[:n]...), err, unsure})
		batch = batch[n:]
	}
	for b.asiding < min(asideWriters, len(b.aside)) {
		b.asiding++
		go b.runAside()
	}
}

// runAside writes until nothing is aside.
func (b *batcher[P, R]) runAside() {
	for {
		b.mu.Lock()
		if len(b.aside) == 0 {
			b.asiding--
			if b.asiding == 0 && b.heldUp > 0 {
				b.heldUp = 0
				b.hears(nil, 0)
			}
			b.rest()
			b.mu.Unlock()
			return
		}
		h := b.aside[0]
		b.aside = b.aside[1:]
		alone := len(h.batch) == 1
		if alone { // a part of several was just cut and is news
			b.heldUp++
			if loop.Loud(b.heldUp) {
				b.hears(h.err, len(b.aside)+1)
			}
		}
		b.mu.Unlock()
		if alone {
			time.Sleep(asidePause)
		}
		if h.batch = gaveUp(h.batch, h.err, h.unsure); len(h.batch) > 0 {
			b.send(h.batch, h.unsure)
		}
	}
}

// hears tells what the entries that are aside wait for.
func (b *batcher[P, R]) hears(err error, entries int) {
	if b.holding != nil {
		b.holding(err, entries)
	}
}

// rest tells those who wait that nothing is left to write, if so. With mu held.
func (b *batcher[P, R]) rest() {
	if b.busy() {
		return
	}
	for _, c := range b.idle {
		close(c)
	}
	b.idle = nil
}

// busy reports whether anything is being written or waits for that. With mu held.
func (b *batcher[P, R]) busy() bool { return b.writing || b.asiding > 0 }
