package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/store"
)

// notifySlot is how often one process tells others of one queue. A commit that
// notifies takes a lock of the whole server, so a burst must not be a burst of
// those; what falls into a slot is told at its end.
const notifySlot = 250 * time.Millisecond

// announce is how far ahead a delayed run still wakes workers at once: they
// would otherwise find it when their poll comes round.
const announce = time.Second

var qNotify = named("notify")

// notifier tells other processes of work. Inside a transaction it adds a
// statement that is delivered with the commit; what was held back goes out from
// its goroutine.
type notifier struct {
	s    *Store
	mute bool // the role may not notify: workers find by polling what it enqueues

	mu   sync.Mutex
	told map[string]time.Time // by queue: when its slot began
	late map[string]struct{}  // to be told at the end of their slot
	kick loop.Signal
	end  chan struct{}
	stop context.CancelFunc
}

func newNotifier(s *Store, mute bool) *notifier {
	ctx, cancel := context.WithCancel(context.Background())
	n := &notifier{
		s: s, mute: mute, told: map[string]time.Time{}, late: map[string]struct{}{},
		kick: loop.NewSignal(), end: make(chan struct{}), stop: cancel,
	}
	go n.loop(ctx)
	return n
}

// call is the statement that tells of queues when its transaction commits.
func (n *notifier) call(queues []string) call {
	stored := make([]string, len(queues))
	for i, q := range queues {
		stored[i] = enc(q)
	}
	return call{st: qNotify, args: []any{n.s.cfg.channel(), stored}}
}

// pick are the queues that a batch gives work, less those told of a moment ago,
// which are told again soon.
func (n *notifier) pick(batch []store.EnqueueParams) []string {
	var queues []string
	var last string
	for i := range batch {
		p := &batch[i]
		if p.Delay > announce || !p.RunAt.IsZero() && time.Until(p.RunAt) > 2*announce {
			continue // the clocks need not agree: one told too many does no harm
		}
		if p.Queue != last || len(queues) == 0 {
			if last = p.Queue; !slices.Contains(queues, last) {
				queues = append(queues, last)
			}
		}
	}
	return n.take(queues)
}

// take opens the slots of the queues that may be told of now, and has the others
// told of at the end of theirs.
func (n *notifier) take(queues []string) []string {
	if len(queues) == 0 || n.mute {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	var out []string
	for _, q := range queues {
		if began, ok := n.told[q]; ok && now.Sub(began) < notifySlot {
			n.late[q] = struct{}{}
			continue
		}
		n.told[q] = now
		out = append(out, q)
	}
	if len(n.late) > 0 {
		n.wake()
	}
	return out
}

// in tells of queues with the commit of a transaction.
func (n *notifier) in(ctx context.Context, tx pgx.Tx, queues []string) error {
	slices.Sort(queues)
	queues = n.take(slices.Compact(queues))
	if len(queues) == 0 {
		return nil
	}
	return n.s.run(ctx, tx, n.call(queues))
}

// later tells of queues whose work is committed already.
func (n *notifier) later(queues []string) {
	if len(queues) == 0 || n.mute {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range queues {
		n.late[q] = struct{}{}
	}
	n.wake()
}

func (n *notifier) wake() {
	n.kick.Give()
}

func (n *notifier) loop(ctx context.Context) {
	defer close(n.end)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		queues, wait := n.ripe()
		if len(queues) > 0 {
			// Whoever polls finds the work if this fails.
			_ = n.s.write(ctx, func(q queryer) error { return n.s.runAll(ctx, q, n.call(queues)) })
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-n.kick:
		case <-timer.C:
		}
	}
}

// ripe takes the queues whose slot is over, and says when to look again.
func (n *notifier) ripe() (queues []string, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	wait = time.Hour
	for q := range n.late {
		if left := notifySlot - now.Sub(n.told[q]); left > 0 {
			wait = min(wait, left)
			continue
		}
		queues = append(queues, q)
		n.told[q] = now
		delete(n.late, q)
	}
	for q, began := range n.told {
		if now.Sub(began) > time.Minute {
			delete(n.told, q) // queues come and go
		}
	}
	return queues, wait
}

func (n *notifier) close() {
	n.stop()
	<-n.end
}
