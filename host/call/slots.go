package call

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Slots bound how many guests run at the same time. Compiled code keeps its
// thread until it visits the host, so more guests than processors would only
// make everything else wait. Waiters are served in the order they came. It is
// safe for concurrent use.
//
// A guest in a call that is expected to wait gives its slot up. One in a call
// that is expected to return at once only lends it: it has it back for one
// atomic operation if nobody took it meanwhile. Handing over at every call
// would cost small guests more than all their work. Should such a call take
// longer than expected, waiters take the slot after about a millisecond.
type Slots struct {
	size int

	mu      sync.Mutex
	holders []*ticket // of taken slots, lent ones included
	queue   []*waiter
	watched bool // a timer will look for lent slots

	waiting atomic.Int32 // len(queue), for a look without the lock
}

// ticket is what a guest holds a slot with. Its state changes from lent by
// whoever is first, otherwise by its owner or under the lock.
type ticket struct {
	state atomic.Int32
	since atomic.Int64 // when it was lent, as nano
	// taken is when its owner got the slot, as nano; written under the lock
	// while the owner waits, read by the owner.
	taken time.Duration
}

const (
	away int32 = iota // without a slot
	held
	lent
)

type waiter struct {
	t     *ticket
	given chan struct{} // closed once t holds a slot
}

const (
	// lentFor is how long a slot stays lent before others may take it.
	lentFor = 200 * time.Microsecond
	// watchEvery is how often lent slots are looked at while someone waits.
	watchEvery = time.Millisecond
)

// NewSlots makes n slots; n is at least 1.
func NewSlots(n int) *Slots { return &Slots{size: n} }

// acquire takes a slot for t, which has none, or answers the context's cause
// when it ends first.
func (s *Slots) acquire(ctx context.Context, t *ticket) error {
	s.mu.Lock()
	if len(s.queue) == 0 && s.take(t) {
		s.mu.Unlock()
		return nil
	}
	w := &waiter{t, make(chan struct{})}
	s.queue = append(s.queue, w)
	s.waiting.Add(1)
	s.watch()
	s.mu.Unlock()
	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, w); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		s.waiting.Add(-1)
	} else { // given in the same moment
		s.drop(t)
	}
	return context.Cause(ctx)
}

// release gives t's slot up, if it still has one.
func (s *Slots) release(t *ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(t)
}

// lend lets others have t's slot if they want it for longer than a moment.
func (s *Slots) lend(t *ticket) {
	t.since.Store(int64(nano()))
	t.state.Store(lent)
}

// reclaim takes the lent slot back, unless somebody has it.
func (t *ticket) reclaim() bool { return t.state.CompareAndSwap(lent, held) }

// take gives t a slot that is free, or lent for longer than a moment. The
// caller holds the lock.
func (s *Slots) take(t *ticket) bool {
	now := int64(nano())
	if len(s.holders) < s.size {
		s.holders = append(s.holders, t)
		t.taken = time.Duration(now)
		t.state.Store(held)
		return true
	}
	for i, h := range s.holders {
		if h.state.Load() == lent && now-h.since.Load() >= int64(lentFor) && h.state.CompareAndSwap(lent, away) {
			s.holders[i] = t
			t.taken = time.Duration(now)
			t.state.Store(held)
			return true
		}
	}
	return false
}

// drop frees t's slot and serves who waits. The caller holds the lock.
func (s *Slots) drop(t *ticket) {
	i := slices.Index(s.holders, t)
	if i < 0 {
		return // it was lent and is taken
	}
	t.state.Store(away)
	s.holders = slices.Delete(s.holders, i, i+1)
	s.serve()
}

// serve gives slots to waiters while there are both. The caller holds the lock.
func (s *Slots) serve() {
	for len(s.queue) > 0 && s.take(s.queue[0].t) {
		close(s.queue[0].given)
		s.queue = slices.Delete(s.queue, 0, 1)
		s.waiting.Add(-1)
	}
	s.watch()
}

// watch makes sure that lent slots are looked at as long as somebody waits. The
// caller holds the lock.
func (s *Slots) watch() {
	if len(s.queue) == 0 || s.watched {
		return
	}
	s.watched = true
	time.AfterFunc(watchEvery, func() {
		s.mu.Lock()
		s.watched = false
		s.serve()
		s.mu.Unlock()
	})
}

// contended reports whether someone waits for a slot.
func (s *Slots) contended() bool { return s.waiting.Load() > 0 }

// InUse is how many are taken; those lent for a moment count.
func (s *Slots) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holders)
}

// Cap is how many there are.
func (s *Slots) Cap() int { return s.size }
