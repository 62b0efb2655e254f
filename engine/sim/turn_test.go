package sim_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"

	"github.com/jobrunner/runner/abi"
)

// fate is what becomes of one operation.
type fate int

const (
	proceed  fate = iota
	refuse        // it is not done: the database is away
	full          // it is not done: the disk is full
	lose          // it is done, and its answer is an error of unknown outcome
	late          // it is done, and its answer takes a while
	vanish        // neither done nor answered
	unheard       // done, and never answered: its process is gone
	breaking      // it is not done, in a way that no repeat mends
	double        // it is done, and done again: whoever carried it repeated it
)

var fateNames = [...]string{"", " REFUSED", " FULL", " ANSWER LOST", " ANSWER LATE", " VANISHED", " UNHEARD", " BROKEN", " TWICE"}

// call is one operation that waits for its turn.
type call struct {
	p       *process
	op      string
	what    string // a stable description, by which calls of one instant are ordered
	reads   bool
	arrival int
	at      time.Time // not before
	rolled  bool      // at is set
	left    bool      // its caller has given up and will not hear of it
	turn    chan fate // capacity 1
	slow    time.Duration
}

// turnstile is where operations wait. One is let through at a time, while
// everything else in the simulation stands still.
type turnstile struct {
	mu      sync.Mutex
	waiting []*call
	count   int
	arrived chan struct{} // capacity 1
}

func (t *turnstile) enter(c *call) {
	t.mu.Lock()
	t.count++
	c.arrival = t.count
	t.waiting = append(t.waiting, c)
	t.mu.Unlock()
	select {
	case t.arrived <- struct{}{}:
	default:
	}
}

// leave takes a call out whose caller has given up, or keeps it to be done
// later, as a database does with what has reached it.
func (t *turnstile) leave(c *call, keep bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.left = true
	if keep {
		return
	}
	if i := slices.Index(t.waiting, c); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		c.turn <- vanish
	}
}

// sorted are the waiting calls in an order that does not depend on which of
// several goroutines came first.
func (t *turnstile) sorted() []*call {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortFunc(t.waiting, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.p.name, b.p.name), cmp.Compare(a.op, b.op), cmp.Compare(a.what, b.what), cmp.Compare(a.arrival, b.arrival))
	})
	return slices.Clone(t.waiting)
}

func (t *turnstile) release(c *call, f fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, c); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		c.turn <- f
	}
}

// act has an operation wait for its turn and done as its fate has it. saw hears
// of it at once when it is done, before anything else can happen.
func act[R any](p *process, ctx context.Context, c call, do func(context.Context) (R, error), saw func(R)) (R, error) {
	type answer struct {
		r   R
		err error
	}
	var zero R
	if ctx.Err() != nil {
		return zero, context.Cause(ctx)
	}
	done := make(chan answer, 1)
	c.p, c.turn = p, make(chan fate, 1)
	p.w.turn.enter(&c)
	asked := context.WithValue(context.WithoutCancel(ctx), asking{}, p)
	go func() {
		f := <-c.turn
		switch f {
		case refuse:
			done <- answer{err: enginetest.Away()}
			return
		case full:
			done <- answer{err: &abi.Error{Code: job.CodeDatabaseFull, Message: "the disk is full"}}
			return
		case breaking:
			done <- answer{err: enginetest.Broken()}
			return
		case vanish:
			return
		}
		r, err := do(asked)
		if err == nil && saw != nil {
			saw(r)
		}
		if f == double && err == nil {
			if r, err = do(asked); err == nil && saw != nil {
				saw(r)
			}
		}
		switch f {
		case unheard:
			return
		case lose:
			if err == nil {
				err = enginetest.Lost(func() error { return nil })
			}
		case late:
			time.Sleep(c.slow)
		}
		if err != nil {
			r = zero
		}
		done <- answer{r, err}
	}()
	select {
	case a := <-done:
		return a.r, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-done:
		return a.r, a.err
	default:
	}
	p.w.turn.leave(&c, !p.dead.Load() && p.w.dice("leave", p.name, c.op, c.what, time.Now()).IntN(2) == 0)
	return zero, errors.Join(context.Cause(ctx), store.ErrUnknown)
}
