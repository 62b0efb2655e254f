package sqlite

import (
	"context"
	"sync"
	"time"
)

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

// post announces queues to whoever listens, and returns at once.
func (h *hub) post(queues map[string]struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 || h.closed {
		return
	}
	for q := range queues {
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

// Wakes implements store.Notifier. Commits of other processes are noticed
// within Config.PollInterval and announced without a queue.
func (s *Store) Wakes(wake func(queue string)) (stop func()) {
	stop, first := s.hub.add(wake)
	if first && !s.cfg.memory() {
		s.polling.Add(1)
		go s.pollForeign()
	}
	return stop
}

// Listening implements store.Notifier: the file is watched as long as anyone
// listens.
func (s *Store) Listening() bool { return true }

// pollForeign watches the writing connection's data version, which changes with
// the commits of every connection but its own: of other processes, since nothing
// else here writes.
func (s *Store) pollForeign() {
	defer s.polling.Done()
	ticker := time.NewTicker(s.cfg.PollInterval)
	defer ticker.Stop()
	var last int64
	for {
		select {
		case <-s.closing:
			return
		case <-ticker.C:
		}
		var version int64
		err := s.w.do(context.Background(), func(tx *tx) (err error) {
			version, err = tx.dataVersion()
			return err
		})
		if err != nil {
			continue // whoever writes is told; the poll comes round again
		}
		if last != 0 && version != last {
			s.hub.post(map[string]struct{}{"": {}})
		}
		last = version
	}
}

func (c *conn) dataVersion() (int64, error) {
	q := c.use(qDataVersion)
	var v int64
	if q.step() {
		v = q.colInt(0)
	}
	return v, q.end()
}

var qDataVersion = named("data_version")
