package call

import (
	"context"
	"sync/atomic"
)

// Slots bound how many guests run at the same time. Compiled code keeps its
// thread until it visits the host, so more guests than processors would only
// make everything else wait. Waiters are served in the order they came. It is
// safe for concurrent use.
type Slots struct {
	c       chan struct{}
	waiting atomic.Int32
}

// NewSlots makes n slots; n is at least 1.
func NewSlots(n int) *Slots { return &Slots{c: make(chan struct{}, n)} }

// Acquire takes a slot, or answers the context's cause when it ends first.
func (s *Slots) Acquire(ctx context.Context) error {
	select {
	case s.c <- struct{}{}:
		return nil
	default:
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case s.c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Release gives a slot back.
func (s *Slots) Release() { <-s.c }

// Contended reports whether someone waits for a slot.
func (s *Slots) Contended() bool { return s.waiting.Load() > 0 }

// InUse is how many are taken.
func (s *Slots) InUse() int { return len(s.c) }

// Cap is how many there are.
func (s *Slots) Cap() int { return cap(s.c) }
