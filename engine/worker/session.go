package worker

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// session is one registration of the worker and what it holds.
type session struct {
	id  string
	ctx context.Context // ends when the session's writes can land no more
	end context.CancelCauseFunc

	// Guarded by Worker.mu.
	held     map[job.Ref]*attempt
	retiring bool
	lapse    bool // leaves without a goodbye
	over     bool

	beats chan struct{} // closed when its heartbeat has ended
	stop  chan struct{} // closed to end its heartbeat
	began time.Time     // start of the last renewal that landed; the heartbeat's

	queues []string    // that the store knows of; the heartbeat's
	saving atomic.Bool // lines are being saved
}

// Tries for a lease that the worker has in time.
const (
	registrations = 3
	confirmations = 2 // renewals of each
)

// register announces a session of life and answers it when a lease is certain
// that has most of its time to come. patience bounds each announcement; 0 does not.
// alone says that every other row is a dead worker's: true only of the first
// registration of a lifetime, since a later one may stand beside a session that
// retires.
func (w *Worker) register(ctx context.Context, life *lifetime, patience time.Duration, alone bool) (*session, error) {
	for range registrations {
		s, err := w.announce(ctx, patience, alone)
		held := false
		if err == nil {
			held, err = w.confirm(ctx, life, s)
		}
		if held || err != nil {
			w.beat(err)
		}
		if held {
			return s, nil
		}
		if err != nil {
			return nil, err
		}
	}
	err := &abi.Error{
		Code:    job.CodeLeaseLost,
		Message: "the worker's lease of " + w.cfg.Lease.String() + " is over each time before the database has answered that it began",
		Fix:     "see what keeps the database busy, or raise [runner] lease",
	}
	w.beat(err)
	return nil, err
}

// announce registers a new session.
func (w *Worker) announce(ctx context.Context, patience time.Duration, alone bool) (*session, error) {
	u, err := uuid.NewV7()
	if err != nil {
		return nil, &abi.Error{Code: job.CodeInternal, Message: "no random bytes for a worker's id", Err: err}
	}
	s := &session{
		id:    u.String(), // unique per registration: a host name would inherit the leases of its predecessor
		held:  map[job.Ref]*attempt{},
		beats: make(chan struct{}),
		stop:  make(chan struct{}),
		began: time.Now(),
	}
	s.queues = w.slots.list()
	s.ctx, s.end = context.WithCancelCause(context.Background())
	err = within(ctx, patience, func(ctx context.Context) error {
		return w.cfg.Store.Register(ctx, store.RegisterParams{
			ID: s.id, Host: host(), PID: os.Getpid(), Queues: s.queues,
			Lease: w.cfg.Lease, Alone: alone,
		})
	})
	if err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

// confirm renews a session whose registration took so long that a renewal is due,
// and answers whether its lease is held. It counts from before the registration was
// sent, since the store may have granted it then and only the answer been late. One
// that waited for the store instead (for a locked file) is spent on this clock
// though the store has just granted it. The session holds nothing yet, so that it
// may ask late.
func (w *Worker) confirm(ctx context.Context, life *lifetime, s *session) (held bool, err error) {
	for range confirmations {
		if w.renewIn(s) > 0 || !w.runs(life) {
			return true, nil // of a life that is over, install takes it back
		}
		began := time.Now()
		var res store.RenewResult
		err := within(ctx, w.cfg.Lease, func(ctx context.Context) (err error) {
			res, err = w.cfg.Store.Renew(ctx, store.RenewParams{Worker: s.id, Lease: w.cfg.Lease})
			return err
		})
		if err != nil || !res.Alive {
			s.end(errLeft)
			return false, err
		}
		s.began = began
	}
	if time.Since(s.began) < w.cfg.Lease {
		return true, nil // a slow store, but in time
	}
	s.end(errLeft)
	return false, nil
}

// runs reports whether life takes sessions.
func (w *Worker) runs(life *lifetime) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.life == life && w.state == running
}

// renewIn is how long it is until s is to be renewed; 0 if that is due. It counts
// from the start of the last renewal, however long its answer took.
func (w *Worker) renewIn(s *session) time.Duration {
	return max(w.cfg.Lease/3-time.Since(s.began), 0)
}

// within calls f with a context that ends after patience, if that is not 0.
func within(ctx context.Context, patience time.Duration, f func(context.Context) error) error {
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	return f(ctx)
}

// install makes s the session that takes claims in life, and starts begin with
// it. It does not when life was shut while s was being registered: nobody would
// look after s any more, so it goes at once and the answer is false.
func (w *Worker) install(life *lifetime, s *session, begin func()) bool {
	w.mu.Lock()
	if w.life != life || w.state != running {
		w.mu.Unlock()
		w.goodbye(s)
		return false
	}
	w.current = s
	w.sessions[s] = struct{}{}
	go w.heartbeat(s)
	begin() // within the lock: a shutdown waits for all of life's loops or sees none
	w.mu.Unlock()
	w.wakes.now()
	return true
}

// keepRegistered replaces a session that was lost or retired, until life ends.
func (w *Worker) keepRegistered(life *lifetime) {
	backoff := loop.Backoff{Floor: pollFloor, Ceiling: 5 * time.Second}
	failures := 0
	for {
		if !w.needsSession() {
			select {
			case <-life.ctx.Done():
				return
			case <-w.replace:
			}
			continue
		}
		s, err := w.register(life.ctx, life, claimTimeout, false)
		if err == nil {
			failures = 0
			backoff.Reset()
			w.install(life, s, func() {})
			continue
		}
		if failures++; loop.Loud(failures) && life.ctx.Err() == nil {
			w.cfg.Logger.Warn("jobs.worker.register-failed", slog.Any("error", err), slog.Int("in_a_row", failures))
		}
		if !loop.Sleep(life.ctx, backoff.Next()) {
			return
		}
	}
}

func (w *Worker) needsSession() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current == nil && w.state == running
}

// Leased reports whether the worker holds a lease under which it claims. It does
// not while it drains, and not between a lease that was lost and the next.
func (w *Worker) Leased() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state == running && w.current != nil
}

// Trouble is why this process cannot write what it must: the error of its last
// renewal or claim, or of steps and ends of attempts that wait. Nil when these
// landed.
func (w *Worker) Trouble() error { return cmp.Or(w.trouble.last(), w.cfg.Queue.Trouble()) }

// beat notes how a renewal or a registration went.
func (w *Worker) beat(err error) {
	if w.trouble.beat(err) {
		w.cfg.Logger.Info("jobs.worker.recovered")
	}
}

// trouble are the errors of the last renewal and of the last claim. A claim that
// finds nothing writes nothing, so it says nothing about renewals.
type trouble struct {
	mu             sync.Mutex
	beats, claimed error
}

// beat reports whether it is over with err.
func (t *trouble) beat(err error) (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	over = err == nil && t.beats != nil
	t.beats = err
	return over
}

func (t *trouble) claim(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.claimed = err
}

func (t *trouble) last() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(t.beats, t.claimed)
}

// withdraw stops s from taking claims. With mu held.
func (w *Worker) withdraw(s *session) {
	if w.current != s {
		return
	}
	w.current = nil
	w.replace.Give()
}

// lose ends a session whose lease is gone: its attempts are aborted and write
// nothing more.
func (w *Worker) lose(s *session, why string) {
	cause := &abi.Error{Code: job.CodeLeaseLost, Message: "the worker lost its lease: " + why}
	w.mu.Lock()
	if s.over {
		w.mu.Unlock()
		return
	}
	s.over = true
	delete(w.sessions, s)
	w.withdraw(s)
	lost := make([]*attempt, 0, len(s.held))
	for _, a := range s.held {
		lost = append(lost, a)
	}
	w.mu.Unlock()

	w.cfg.Logger.Error("jobs.lease.lost", slog.String("worker", s.id), slog.String("why", why), slog.Int("runs", len(lost)))
	s.end(cause)
	for _, a := range lost {
		w.cfg.Metrics.LeaseLost(a.run.Queue)
		a.cancel(cause)
	}
}

// retire lets a session finish what it holds and then go.
func (w *Worker) retire(s *session, why string) {
	w.mu.Lock()
	first := !s.retiring && !s.over
	s.retiring = true
	w.withdraw(s)
	empty := len(s.held) == 0 && !s.over
	w.mu.Unlock()
	if first {
		w.cfg.Logger.Warn("jobs.worker.session-retired", slog.String("worker", s.id), slog.String("why", why))
	}
	if empty {
		go w.leave(s)
	}
}

// forsake retires a session one of whose runs could not be settled. It goes
// without deregistering: its row lapses, and the reclaim delivers the run
// again, counted, so that a run which no store accepts is buried in the end.
func (w *Worker) forsake(s *session) {
	w.mu.Lock()
	s.lapse = true
	w.mu.Unlock()
	w.retire(s, "a settle failed")
}

// deregisterPatience bounds the goodbye. Without it the lease says it later.
const deregisterPatience = 2 * time.Second

// leave ends a session in order: no renewal after its row is gone, and what it
// still holds is ready at once (or when its row lapses, if it is forsaken).
func (w *Worker) leave(s *session) {
	w.mu.Lock()
	if s.over {
		w.mu.Unlock()
		return
	}
	s.over = true
	delete(w.sessions, s)
	w.withdraw(s)
	lapse := s.lapse
	w.mu.Unlock()

	close(s.stop)
	<-s.beats
	if lapse {
		s.end(errLeft)
		return
	}
	w.goodbye(s)
}

var errLeft = &abi.Error{Code: job.CodeLeaseLost, Message: "the worker has left"}

// goodbye takes back the registration of a session without a heartbeat.
func (w *Worker) goodbye(s *session) {
	defer s.end(errLeft)
	ctx, cancel := context.WithTimeout(context.Background(), deregisterPatience)
	defer cancel()
	if err := w.cfg.Store.Deregister(ctx, s.id); err != nil {
		w.cfg.Logger.Warn("jobs.worker.deregister-failed", slog.String("worker", s.id), slog.Any("error", err))
	}
}
