package postgres

import "sync"

// hub calls wake funcs on a goroutine of its own, so that a commit never waits
// for a listener and a burst of commits becomes one call per queue.
type hub struct {
	calling sync.Mutex // held while funcs are called; stop takes it to wait for them

	mu      sync.Mutex
	subs    map[int]func(queue string)
	next    int
	pending map[string]struct{}
	kick    chan struct{}
	end     chan struct{}
	started bool
	closed  bool
}

func newHub() *hub {
	return &hub{subs: map[int]func(string){}, pending: map[string]struct{}{}, kick: make(chan struct{}, 1), end: make(chan struct{})}
}

// post announces queues to whoever listens in this process, and returns at once.
func (h *hub) post(queues []string) {
	if len(queues) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 || h.closed {
		return
	}
	for _, q := range queues {
		h.pending[q] = struct{}{}
	}
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// add subscribes wake. first says that nobody listened before.
func (h *hub) add(wake func(string)) (stop func(), first bool) {
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

func (h *hub) loop() {
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

func (h *hub) close() {
	h.mu.Lock()
	started := h.started && !h.closed
	h.closed = true
	h.subs = map[int]func(string){}
	h.mu.Unlock()
	if started {
		select {
		case h.kick <- struct{}{}:
		default:
		}
		<-h.end
	}
}
