package worker

import (
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
)

// wakes tell the claim loop when to make its next pass. There is one loop, and
// however often it is told while it is in a pass, one more follows. The zero
// value is ready after reset; safe for concurrent use.
type wakes struct {
	mu    sync.Mutex
	c     loop.Signal // look again
	fresh bool        // a wake, not a freed slot: begin the backoff anew
	pass  bool        // a pass is asked for; otherwise only the time has changed
	at    time.Time   // when the loop will pass on its own
}

// reset begins a lifetime.
func (w *wakes) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.c = loop.NewSignal()
	w.fresh, w.pass, w.at = true, true, time.Time{}
	w.c.Give()
}

// now asks for a pass because there may be work.
func (w *wakes) now() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fresh, w.pass = true, true
	w.poke()
}

// slot asks for a pass because a slot is free that a claim has waited for.
func (w *wakes) slot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass = true
	w.poke()
}

// due moves the next pass forward to t.
func (w *wakes) due(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at.IsZero() || t.Before(w.at) {
		w.at = t
		w.poke()
	}
}

// poke makes the loop look. With mu held.
func (w *wakes) poke() {
	w.c.Give() // it will look anyway, or has not begun
}

// take answers whether a pass is asked for, whether the backoff begins anew,
// and how long to wait if none is.
func (w *wakes) take() (pass, fresh bool, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait = time.Until(w.at)
	pass = w.pass || wait <= 0
	fresh = w.fresh
	if pass {
		w.pass, w.fresh, w.at = false, false, time.Time{}
	}
	return pass, fresh, wait
}

// after sets when the loop passes on its own, unless it is to be earlier.
func (w *wakes) after(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := time.Now().Add(d)
	if w.at.IsZero() || t.Before(w.at) {
		w.at = t
	}
}

// changed is closed never and sends when there is something to take.
func (w *wakes) changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.c
}
