package app

import (
	"context"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

// virtualClock is the real clock moved ahead: it runs as time does, so that
// what a step took is what it took, and jumps over what is only waited for. It
// is safe for concurrent use.
type virtualClock struct {
	mu    sync.Mutex
	ahead time.Duration
}

// Now is the clock's time.
func (c *virtualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// advance moves the clock to t, never back.
func (c *virtualClock) advance(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += max(0, t.Sub(time.Now().Add(c.ahead)))
}

// virtualLease outlives every jump of the clock: a worker that holds a run over
// a virtual year has not lost it.
const virtualLease = 100 * 365 * 24 * time.Hour

// maxJumps is how often virtual time may be moved: a run that always comes due
// again is stopped here rather than never.
const maxJumps = 100_000

// virtualStore makes waiting take no time. It watches the claims of the one
// worker that uses the store: when nothing runs and nothing is due, the clock
// jumps to the next due instant; when nothing will ever be due, it says so.
type virtualStore struct {
	store.Store
	clock *virtualClock

	mu      sync.Mutex // guards all below
	running int
	settles int // calls of Settle that have answered
	jumps   int
	wake    func(queue string)
	idle    chan struct{} // closed once nothing will happen any more
	over    bool          // idle is closed because of maxJumps
	events  []virtualEvent
}

// virtualEvent is published when the clock gets there.
type virtualEvent struct {
	at     time.Time
	params store.EventParams
}

// nextEvent takes the event that comes next, if it comes no later than due, or
// due is never. With mu held.
func (s *virtualStore) nextEvent(due time.Time) (e virtualEvent, ok bool) {
	if len(s.events) == 0 || !due.IsZero() && s.events[0].at.After(due) {
		return e, false
	}
	e, s.events = s.events[0], s.events[1:]
	return e, true
}

func newVirtualStore(s store.Store, c *virtualClock) *virtualStore {
	return &virtualStore{Store: s, clock: c, idle: make(chan struct{})}
}

// Claim claims, and moves the clock when there is nothing else to wait for.
func (s *virtualStore) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	s.mu.Lock()
	settles, quiet := s.settles, s.running == 0
	s.mu.Unlock()
	r, err := s.Store.Claim(ctx, p)
	if err != nil {
		return r, err
	}
	s.mu.Lock()
	s.running += len(r.Runs)
	wake := s.wake
	// A claim beside a settle may have looked before it: what the settled run waits
	// for is not in its answer. The settle asks for another claim.
	jump := quiet && s.settles == settles && s.running == 0 && !r.WorkerGone
	var event virtualEvent
	published := false
	if jump {
		event, published = s.nextEvent(r.NextDue)
	}
	switch {
	case !jump:
	case published:
		s.clock.advance(event.at)
	case r.NextDue.IsZero():
		s.end(false)
		jump = false
	case s.jumps >= maxJumps:
		s.end(true)
		jump = false
	default:
		s.jumps++
		s.clock.advance(r.NextDue)
	}
	s.mu.Unlock()
	if published {
		if _, err := s.Store.Publish(ctx, []store.EventParams{event.params}); err != nil {
			return r, err
		}
	}
	if jump && wake != nil {
		wake("")
	}
	return r, nil
}

func (s *virtualStore) end(over bool) {
	select {
	case <-s.idle:
	default:
		s.over = over
		close(s.idle)
	}
}

// Settle settles; the runs that landed do not run any more.
func (s *virtualStore) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	rs, err := s.Store.Settle(ctx, batch)
	s.mu.Lock()
	for _, r := range rs {
		if r.Landed {
			s.running--
		}
	}
	s.settles++
	wake := s.wake
	s.mu.Unlock()
	if wake != nil {
		wake("")
	}
	return rs, err
}

// Register registers under a lease that no jump ends.
func (s *virtualStore) Register(ctx context.Context, p store.RegisterParams) error {
	p.Lease = virtualLease
	return s.Store.Register(ctx, p)
}

// Renew renews that lease.
func (s *virtualStore) Renew(ctx context.Context, p store.RenewParams) (store.RenewResult, error) {
	p.Lease = virtualLease
	return s.Store.Renew(ctx, p)
}

// Wakes adds the clock's jumps to the store's own wakes.
func (s *virtualStore) Wakes(wake func(queue string)) (stop func()) {
	s.mu.Lock()
	s.wake = wake
	s.mu.Unlock()
	inner := s.Store.Wakes(wake)
	return func() {
		s.mu.Lock()
		s.wake = nil
		s.mu.Unlock()
		inner()
	}
}

// Purge deletes nothing: what a jump lies beyond the retention of is what the
// caller wants to see.
func (s *virtualStore) Purge(context.Context, int) (int, error) { return 0, nil }
