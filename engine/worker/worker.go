package worker

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/deploy"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// Store is what a worker asks of a database beside the queue.
type Store interface {
	store.Admin
	store.Notifier
	store.Pauser
	// SaveLogs is store.Logs's.
	SaveLogs(ctx context.Context, batch []store.LogParams) error
	// PurgeEvents is store.Events's.
	PurgeEvents(ctx context.Context, limit int) (int, error)
	store.Workers
}

// Config is fixed at New.
type Config struct {
	Store  Store
	Queue  *queue.Queue
	Deploy *deploy.Registry
	// Lease is how long this worker's runs stay its own without a renewal: how
	// long they wait if the process dies. It renews three times as often.
	// Default 30s, at least 1s. Short leases cost renewals and lose runs to
	// pauses; long ones delay the runs of a dead worker.
	Lease time.Duration
	// Queues are served; nil serves all of the current manifest.
	Queues []string
	// Alone says that no other process uses the database: the rows of workers
	// before this one lapse at once.
	Alone   bool
	Logger  *slog.Logger // default discards
	Metrics *metrics.Metrics
	Tracer  trace.Tracer // nil makes no spans // nil records nothing
	// Settled, when not nil, hears of each settle that landed. It must not block.
	Settled func(runID string, to job.State)
	// MaxOrphans is how many leases of one run may lapse in a row before it is
	// buried as poison. Default 3; -1 is no bound.
	MaxOrphans int
}

// MinLease is the shortest lease: below it, a pause of the garbage collector or
// of a disk looks like a death.
const MinLease = time.Second

// Cadences and bounds that no one has needed to set.
const (
	pollFloor    = 250 * time.Millisecond // first idle wait, and the wait after a failed claim
	pollCeiling  = 2 * time.Second        // idle wait at most: the guarantee behind every wake
	wokenCeiling = 5 * time.Second        // the same while wakes are known to arrive
	dueSlack     = 10 * time.Millisecond  // after a due time, so that the store agrees it has passed
	dueHorizon   = time.Minute            // due times further away are left to polling
	crumbFloor   = time.Millisecond       // a few free slots of many wait for company for as long as
	crumbCeiling = 4 * time.Millisecond   // the last claim took, between these
	claimTimeout = 10 * time.Second
	parkDelay    = 30 * time.Second // of a run that this process cannot serve
	shedDelay    = time.Second      // of a run whose history could not be read
	gaugeEvery   = 15 * time.Second
	// maxQueueGauges is how many queues have gauges of their own, besides those that
	// are served: whoever may enqueue by SQL may name as many as they like.
	maxQueueGauges = 1000
	purgeEvery     = time.Minute
	ageTick        = 5 * time.Second
	sweepLimit     = 500 // runs a reclaim or a purge moves at a time
)

type state int

const (
	idle state = iota
	running
	draining
	stopped
)

// Worker is safe for concurrent use. Its states are idle, running, draining and
// stopped; it may be started again once stopped.
type Worker struct {
	cfg   Config
	slots slots
	wakes wakes
	limit limits
	crumb atomic.Int64 // how long the last claim took, a time.Duration

	trouble trouble
	backlog backlog

	mu       sync.Mutex // guards all below, and what session and attempt say it does
	state    state
	current  *session // takes claims; nil between two registrations
	sessions map[*session]struct{}
	rounds   int // claims under way
	life     *lifetime
	attempts int             // held by any session, lost ones included
	reported map[string]bool // what a log line was written about once

	counted map[string]metrics.QueueCounts // queues whose gauges were published; the gauge loop's

	quiet   loop.Signal // rounds and attempts reached 0
	replace loop.Signal // current has become nil
}

// New returns an idle worker. Errors: X_INVALID for a lease that is too short.
func New(cfg Config) (*Worker, error) {
	if cfg.Lease == 0 {
		cfg.Lease = 30 * time.Second
	}
	if cfg.Lease < MinLease {
		return nil, &abi.Error{
			Code:    job.CodeInvalid,
			Message: "a lease of " + cfg.Lease.String() + " is too short to be renewed in time",
			Fix:     "set [runner] lease to at least 1s; 30s is the default",
		}
	}
	switch {
	case cfg.MaxOrphans == 0:
		cfg.MaxOrphans = 3
	case cfg.MaxOrphans < 0:
		cfg.MaxOrphans = 0
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Worker{cfg: cfg, sessions: map[*session]struct{}{}, quiet: loop.NewSignal(), replace: loop.NewSignal()}
	w.slots.metrics = cfg.Metrics
	w.Configure(cfg.Deploy.Manifest())
	return w, nil
}

// Configure takes the queues and their slots from a manifest. Attempts under
// way keep their slots, also in a queue that has fewer now or is gone.
func (w *Worker) Configure(m *manifest.Manifest) {
	limits := make(map[string]int, len(m.Queues))
	for name, q := range m.Queues {
		limits[name] = q.Workers
	}
	if w.cfg.Queues != nil {
		only := make(map[string]int, len(w.cfg.Queues))
		for _, name := range w.cfg.Queues {
			only[name] = limits[name] // 0 for a queue that nobody declares
		}
		limits = only
	}
	w.limit.configure(m)
	w.slots.configure(limits, m.Runner.Workers)
	for name, n := range limits {
		if n == 0 {
			w.cfg.Logger.Warn("jobs.worker.queue-unknown", slog.String("queue", name),
				slog.String("fix", "declare it under [queues], or name a queue of a job"))
		}
	}
	w.wakes.now()
}

// Start registers the worker and begins to claim. ctx bounds the registration,
// not the work.
// Errors: the store's; X_INVALID while it is running, X_DRAINING while it drains
// or when it was shut before it had begun.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	switch w.state {
	case running:
		w.mu.Unlock()
		return &abi.Error{Code: job.CodeInvalid, Message: "the worker is running already"}
	case draining:
		w.mu.Unlock()
		return &abi.Error{Code: job.CodeDraining, Message: "the worker is draining", Fix: "start it when it has stopped"}
	}
	w.state = running
	life := newLifetime()
	w.life = life
	w.reported = map[string]bool{}
	w.mu.Unlock()

	s, err := w.register(ctx, life, 0, w.cfg.Alone)
	if err != nil {
		// Nothing was begun, but another shutdown may wait for the end of this life.
		w.shut(life, stopBounds())
		return err
	}
	stopWakes := w.cfg.Store.Wakes(w.wake)
	begun := w.install(life, s, func() {
		w.wakes.reset()
		life.loops.Go(func() {
			<-life.ctx.Done()
			stopWakes()
		})
		life.loops.Go(func() { w.keepRegistered(life) })
		life.loops.Go(func() { w.claims(life.accepting) })
		w.sweep(life)
	})
	if !begun {
		stopWakes()
		return &abi.Error{Code: job.CodeDraining, Message: "the worker was shut before it had begun", Fix: "start it when it has stopped"}
	}
	return nil
}

// wake is told by the store that a queue has a run to claim.
func (w *Worker) wake(queueName string) {
	if queueName == "" || w.slots.serves(queueName) {
		w.wakes.now()
	}
}

// host names this machine for people.
func host() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// once reports whether what is told for the first time in this lifetime.
func (w *Worker) once(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reported[what] || len(w.reported) >= 1000 {
		return false
	}
	w.reported[what] = true
	return true
}
