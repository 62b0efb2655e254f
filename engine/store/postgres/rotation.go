package postgres

import (
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// claims is what a process remembers between claims. All of it is a hint: losing
// it costs a rotation, or a look for what has come due.
type claims struct {
	mu     sync.Mutex
	queues map[string]*queueHints
	// The store's time at an instant of this process, to tell about when a run
	// comes due without asking.
	now time.Time
	at  time.Time

	exactAgain time.Time     // until when claims go by lanes; zero: they do not
	limit      time.Duration // instead of claimBase and claimPerRun; for tests
	still      bool          // the store's clock stands unless it is moved; for tests
}

type queueHints struct {
	served *string   // the tenant that was served last, as it is stored
	lanes  *lanes    // nil while claims are exact
	known  bool      // next is known
	next   time.Time // when the next run that waits for a time is due; zero for none
	// up to when what waits for a time was promoted; zero: not known
	promoted time.Time
}

func newClaims() *claims { return &claims{queues: map[string]*queueHints{}} }

func (c *claims) of(queue string) *queueHints {
	h := c.queues[queue]
	if h == nil {
		h = &queueHints{}
		c.queues[queue] = h
	}
	return h
}

// reset forgets everything: the clock jumped.
func (c *claims) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.queues {
		h.known, h.lanes, h.promoted = false, nil, time.Time{}
	}
	c.exactAgain = time.Time{}
}

// slack is how much earlier than its time a run may be taken to be due, for the
// sake of clocks that do not run alike.
const slack = time.Second

// begin fills in where each queue's rotation goes on, and says whether a run
// that waits for a time may have come due.
func (c *claims) begin(asked []queueClaim, after []*string) (promote bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now.Add(time.Since(c.at) + slack)
	for i, q := range asked {
		h := c.of(q.Queue)
		after[i] = h.served
		if !h.known || !h.next.IsZero() && !h.next.After(now) {
			promote = true
		}
	}
	return promote
}

// served notes who a claim served, in the order of the rotation: the next one
// goes on after the last tenant that got the most.
func (c *claims) served(queue string, order []string, byTenant map[string][]job.Run) {
	last, most := "", 0
	for _, t := range order {
		if n := len(byTenant[t]); n >= most {
			last, most = t, n
		}
	}
	if most == 0 {
		return
	}
	last = enc(last)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(queue).served = &last
}

// seen notes what a claim found waiting for a time, after promoting what was due.
func (c *claims) seen(asked []queueClaim, now, next time.Time, promoted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.at = now, time.Now()
	for _, q := range asked {
		h := c.of(q.Queue)
		h.known, h.next = true, next
		if promoted && (next.IsZero() || next.After(now)) {
			h.promoted = now.Add(-lanesMargin)
		}
	}
}

// timed notes a run that this process made wait for a time; the zero time is one
// that it does not know.
func (c *claims) timed(queue string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.of(queue)
	if !at.After(h.promoted) {
		h.promoted = time.Time{}
	}
	switch {
	case at.IsZero():
		h.known = false
	case h.known && (h.next.IsZero() || at.Before(h.next)):
		h.next = at
	}
}
