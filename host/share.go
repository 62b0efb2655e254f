package host

import (
	"context"
	"sync"
)

// share makes a value per key once and keeps it while somebody holds it.
type share[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]*shared[V]
}

type shared[V any] struct {
	done   chan struct{} // closed once the fields below but holds are set
	v      V
	err    error
	gaveUp bool // err came while the maker's context had ended
	holds  int
}

// get is the value of key, made by produce if nobody holds one. Callers of the
// same key wait for the first of them; if its ctx ends the next one tries.
// release gives the hold up, once; the last calls discard.
func (s *share[K, V]) get(ctx context.Context, key K, produce func() (V, error), discard func(V)) (v V, release func(), err error) {
	for {
		s.mu.Lock()
		e, ok := s.entries[key]
		if !ok {
			e = &shared[V]{done: make(chan struct{}), holds: 1}
			if s.entries == nil {
				s.entries = map[K]*shared[V]{}
			}
			s.entries[key] = e
			s.mu.Unlock()
			s.fill(ctx, key, e, produce)
			if e.err != nil {
				return v, nil, e.err
			}
			return e.v, s.releaser(key, e, discard), nil
		}
		s.mu.Unlock()
		select {
		case <-e.done:
		case <-ctx.Done():
			return v, nil, context.Cause(ctx)
		}
		if e.err != nil {
			if e.gaveUp && ctx.Err() == nil {
				continue
			}
			return v, nil, e.err
		}
		s.mu.Lock()
		if s.entries[key] == e {
			e.holds++
			s.mu.Unlock()
			return e.v, s.releaser(key, e, discard), nil
		}
		s.mu.Unlock() // released meanwhile: once more
	}
}

// fill runs produce; whatever happens to it, nobody waits for ever.
func (s *share[K, V]) fill(ctx context.Context, key K, e *shared[V], produce func() (V, error)) {
	e.err = errNotMade
	defer func() {
		if e.err != nil {
			e.gaveUp = ctx.Err() != nil
			s.mu.Lock()
			delete(s.entries, key)
			s.mu.Unlock()
		}
		close(e.done)
	}()
	e.v, e.err = produce()
}

func (s *share[K, V]) releaser(key K, e *shared[V], discard func(V)) func() {
	return sync.OnceFunc(func() {
		s.mu.Lock()
		e.holds--
		last := e.holds == 0
		if last {
			delete(s.entries, key)
		}
		s.mu.Unlock()
		if last {
			discard(e.v)
		}
	})
}
