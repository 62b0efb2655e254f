package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// Queue checks what a schedule enqueues: a *queue.Queue.
type Queue interface {
	Prepare(requests []queue.Request) ([]store.EnqueueParams, error)
}

// DefaultLease is how long schedules wait for another process when the one that
// leads them dies. It renews three times as often.
const DefaultLease = 30 * time.Second

// Bounds of a Config's lease: below, a pause of the garbage collector looks like
// a death; above, a dead leader is waited for too long.
const (
	minLease = time.Second
	maxLease = time.Hour
)

// Config is fixed at New.
type Config struct {
	// Store is used until Stop has returned.
	Store store.Schedules
	Queue Queue
	// Manifest answers the current one, whose schedules are fired. Kick tells that
	// it is another.
	Manifest func() *manifest.Manifest
	Lease    time.Duration // 0 is DefaultLease; 1s to 1h
	// Alone says that no other process leads schedules of the database when this
	// one begins: what an earlier one led is taken over at once. Later it takes only
	// what is free, like any other.
	Alone   bool
	Logger  *slog.Logger       // default discards
	Metrics *metrics.Schedules // nil records nothing
	Tracer  trace.Tracer       // nil makes no spans
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil || c.Queue == nil || c.Manifest == nil {
		return c, &abi.Error{Code: job.CodeInvalid, Message: "a scheduler needs a store, a queue and a manifest"}
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Lease < minLease || c.Lease > maxLease {
		return c, &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("a scheduler cannot lead for %v at a time", c.Lease), Fix: "use 1s to 1h; 30s is usual"}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Scheduler fires the schedules of a manifest. It is safe for concurrent use; it
// may be started again after it was stopped.
type Scheduler struct {
	cfg    Config
	holder string      // unique per process start
	kick   loop.Signal // look again now

	life loop.Service

	mu    sync.Mutex
	under *round // under way; nil between rounds

	working sync.Mutex // held by a round's work; guards state
	state   state
}

// New returns a scheduler that has not begun. Errors: X_INVALID.
func New(cfg Config) (*Scheduler, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Scheduler{cfg: cfg, holder: loop.Holder(), kick: loop.NewSignal()}, nil
}

// Holder is this scheduler's name in the leases that it holds.
func (s *Scheduler) Holder() string { return s.holder }

// Start begins to fire and returns.
// Errors: X_INVALID if it has begun and was not stopped, or is being stopped.
func (s *Scheduler) Start() error {
	if !s.life.Start(s.loop) {
		return &abi.Error{Code: job.CodeInvalid, Message: "the scheduler runs already"}
	}
	return nil
}

// Kick has it look again at once: the manifest is another. It does not block.
func (s *Scheduler) Kick() {
	s.kick.Give()
}

// Quiesce has nothing more fired, and returns at once.
func (s *Scheduler) Quiesce() {
	s.life.Quiesce()
}

// stopGrace is how long a round that was given up may take to notice.
const stopGrace = 5 * time.Second

// Stop is Quiesce, and waits for the round under way, then gives the leases up,
// so that another process fires what is due next. When ctx ends first, the round
// is given up and its leases are left to lapse: another leader must not begin
// where a fire may still be on its way. Concurrent stops share one end. It does
// nothing to a scheduler that has not begun.
//
// Errors: X_DRAINING if the round did not even notice that it was given up. A
// scheduler whose leases could not be given up is stopped all the same.
func (s *Scheduler) Stop(ctx context.Context) error {
	ended := s.life.Stop(ctx, loop.StopParams{Grace: stopGrace, Abandoned: func() {
		s.cfg.Logger.Warn("schedule.drain-abandoned", slog.String("fix", "nothing is lost: another process fires what is due once the leases have lapsed"))
	}})
	if !ended {
		return &abi.Error{Code: job.CodeDraining, Message: "the scheduler was still waiting for the database when it had to end"}
	}
	return nil
}
