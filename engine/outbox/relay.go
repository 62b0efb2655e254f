package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// Queue is where runs and events go: a *queue.Queue, or what passes on to one.
type Queue interface {
	EnqueueEach(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error)
	PublishEach(ctx context.Context, events []queue.Event) ([]queue.Verdict, error)
}

// Defaults of a Config.
const (
	DefaultLease = 30 * time.Second
	DefaultBatch = 100
	DefaultKeep  = 24 * time.Hour
)

// maxBatch bounds Config.Batch: a batch is in memory, and delays a stop.
const maxBatch = 1000

// Config is fixed at New.
type Config struct {
	// Outbox is used until Stop has returned, and closed by whoever opened it.
	Outbox store.OutboxRelay
	Queue  Queue
	// Name tells this outbox from others in logs and metrics; "" is "default".
	Name string
	// Lease is how long claimed rows are this relay's; see store.CheckLease. 0 is
	// DefaultLease. Shorter, and a slow queue has rows published twice (which
	// inserts nothing); longer, and rows of a killed relay wait.
	Lease time.Duration
	// Batch is the most rows of one claim; 0 is DefaultBatch, the most is 1,000.
	Batch int
	// Keep is how long published rows stay to be looked at; 0 is DefaultKeep, and
	// less keeps them for ever.
	Keep    time.Duration
	Logger  *slog.Logger    // default discards
	Metrics *metrics.Outbox // nil records nothing
	Tracer  trace.Tracer    // nil makes no spans
}

func (c Config) withDefaults() (Config, error) {
	if c.Outbox == nil || c.Queue == nil {
		return c, &abi.Error{Code: job.CodeInvalid, Message: "a relay needs an outbox and a queue"}
	}
	if c.Name == "" {
		c.Name = "default"
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if err := store.CheckLease(c.Lease); err != nil {
		return c, err
	}
	if c.Batch == 0 {
		c.Batch = DefaultBatch
	}
	if c.Batch < 0 || c.Batch > maxBatch {
		return c, &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("a relay cannot claim %d rows at a time", c.Batch), Fix: fmt.Sprintf("use 1 to %d", maxBatch)}
	}
	if c.Keep == 0 {
		c.Keep = DefaultKeep
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With(slog.String("outbox", c.Name))
	return c, nil
}

// Relay publishes the rows of one outbox. It is safe for concurrent use; it may
// be started again after it was stopped.
type Relay struct {
	cfg  Config
	id   string      // unique per process start
	kick loop.Signal // there may be rows
	one  sync.Mutex  // held by a pass: a relay has one batch at a time

	life loop.Service
}

// New returns a relay that has not begun. Errors: X_INVALID.
func New(cfg Config) (*Relay, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Relay{cfg: cfg, id: loop.Holder(), kick: loop.NewSignal()}, nil
}

// ID is the relay's name in the rows that it claims.
func (r *Relay) ID() string { return r.id }

// Start begins to relay and returns. Errors: X_INVALID if it has begun.
func (r *Relay) Start() error {
	if !r.life.Start(r.loop) {
		return &abi.Error{Code: job.CodeInvalid, Message: "the relay runs already"}
	}
	return nil
}

// Quiesce has no more claimed, and returns at once.
func (r *Relay) Quiesce() {
	r.life.Quiesce()
}

// stopGrace is how long a pass that was given up may take to notice: a settle and
// a release.
const stopGrace = 10 * time.Second

// Stop is Quiesce, and waits for the batch under way to be published and
// settled, so that the databases may be closed. When ctx ends first, the batch is
// given up: its rows are released, or lapse with their lease. Concurrent stops
// share one end. It does nothing to a relay that has not begun.
//
// Errors: X_DRAINING if a pass did not even notice that it was given up.
func (r *Relay) Stop(ctx context.Context) error {
	ended := r.life.Stop(ctx, loop.StopParams{Grace: stopGrace, Abandoned: func() {
		r.cfg.Logger.Warn("outbox.drain-abandoned", slog.String("fix", "give the drain more time; the rows are published by the next relay"))
	}})
	if !ended {
		return &abi.Error{Code: job.CodeDraining, Message: "the relay was still waiting for a database when it had to end"}
	}
	return nil
}

// Wake says that there may be rows. It does not block.
func (r *Relay) Wake() {
	r.kick.Give()
}
