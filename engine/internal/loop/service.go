package loop

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"
)

// Holder is a name for what this process holds in a database, unique per call:
// people see the host and the process, and no later process has the same.
func Holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.64s:%d:%s", host, os.Getpid(), rand.Text())
}

// Signal has someone look again. Its capacity is one: signals that nobody has
// heard yet are one.
type Signal chan struct{}

// NewSignal returns a signal that nobody has given.
func NewSignal() Signal { return make(Signal, 1) }

// Give gives it. It does not block.
func (s Signal) Give() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Life is of something that repeats, from a start to the stop after it.
type Life struct {
	// Accepting ends when nothing more is to begin.
	Accepting context.Context
	// Ctx ends, after Accepting, when what is under way is to be given up.
	Ctx context.Context

	quiesce, abort context.CancelFunc
	done           chan struct{} // closed when it has ended
}

// Service is something that is started, is told to begin nothing more, and is
// stopped, and may be started again then. The zero value has not begun. It is safe
// for concurrent use.
type Service struct {
	mu   sync.Mutex
	life *Life // the latest; nil until started
}

// Start runs a life on a goroutine of its own, and answers false if the one before
// has not ended.
func (s *Service) Start(run func(*Life)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life != nil {
		select {
		case <-s.life.done:
		default:
			return false
		}
	}
	l := &Life{done: make(chan struct{})}
	l.Ctx, l.abort = context.WithCancel(context.Background())
	l.Accepting, l.quiesce = context.WithCancel(l.Ctx)
	s.life = l
	go func() {
		defer close(l.done)
		defer l.abort()
		run(l)
	}()
	return true
}

// Quiesce has nothing more begin, and returns at once.
func (s *Service) Quiesce() {
	if l := s.current(); l != nil {
		l.quiesce()
	}
}

// StopParams say how a stop ends what does not end by itself.
type StopParams struct {
	// Abandoned is called when what is under way is about to be given up.
	Abandoned func()
	// Grace is how long it may take to notice.
	Grace time.Duration
}

// Stop is Quiesce, and waits for the life to end. When ctx ends first, what is
// under way is given up. It answers false if that did not even end it. Concurrent
// stops share one end. It does nothing to a service that has not begun.
func (s *Service) Stop(ctx context.Context, p StopParams) (ended bool) {
	l := s.current()
	if l == nil {
		return true
	}
	l.quiesce()
	select {
	case <-l.done:
		return true
	case <-ctx.Done():
	}
	p.Abandoned()
	l.abort()
	timer := time.NewTimer(p.Grace)
	defer timer.Stop()
	select {
	case <-l.done:
		return true
	case <-timer.C:
		return false
	}
}

func (s *Service) current() *Life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}
