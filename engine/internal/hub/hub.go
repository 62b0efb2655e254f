// Package hub spreads the news of a commit within a process: which queues have
// work. How such news comes from other processes is each store's own.
package hub

import (
	"iter"
	"sync"

	"github.com/jobrunner/runner/engine/internal/loop"
)

// Hub calls wake funcs on a goroutine of its own, so that a commit never waits
// for a listener and a burst of commits becomes one call per queue.
type Hub struct {
	calling sync.Mutex // held while funcs are called; stop takes it to wait for them

	mu      sync.Mutex
	subs    map[int]func(queue string)
	next    int
	pending map[string]struct{}
	kick    loop.Signal
	end     chan struct{}
	started bool
	closed  bool
}

// New returns a hub without listeners. Close it.
func New() *Hub {
	return &Hub{subs: map[int]func(string){}, pending: map[string]struct{}{}, kick: loop.NewSignal(), end: make(chan struct{})}
}

// Post announces queues to whoever listens, and returns at once.
func (h *Hub) Post(queues iter.Seq[string]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 || h.closed {
		return
	}
	for q := range queues {
		h.pending[q] = struct{}{}
	}
	if len(h.pending) == 0 {
		return
	}
	h.kick.Give()
}

// Listen subscribes wake, which must not block. first says that nobody listened
// before. stop waits for a call under way, and must not be called from one.
func (h *Hub) Listen(wake func(string)) (stop func(), first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return func() {}, false
	}
	first = !h.started
	if first {
		h.started = true
		go h.loop()
	}
	id := h.next
	h.next++
	h.subs[id] = wake
	return func() {
		h.mu.Lock()
		delete(h.subs, id)
		h.mu.Unlock()
		h.calling.Lock() // a call under way ends first
		defer h.calling.Unlock()
	}, first
}

func (h *Hub) loop() {
	defer close(h.end)
	for range h.kick {
		h.calling.Lock()
		h.mu.Lock()
		queues := h.pending
		h.pending = map[string]struct{}{}
		subs := make([]func(string), 0, len(h.subs))
		for _, f := range h.subs {
			subs = append(subs, f)
		}
		closed := h.closed
		h.mu.Unlock()
		for q := range queues {
			for _, f := range subs {
				f(q)
			}
		}
		h.calling.Unlock()
		if closed {
			return
		}
	}
}

// Close ends all subscriptions and waits for a call under way.
func (h *Hub) Close() {
	h.mu.Lock()
	started := h.started && !h.closed
	h.closed = true
	h.subs = map[int]func(string){}
	h.mu.Unlock()
	if started {
		h.kick.Give()
		<-h.end
	}
}
