package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/deploy"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/schedule"
	"github.com/jobrunner/runner/engine/worker"
)

// Engine runs what is due and offers a Client. It is safe for concurrent use.
type Engine struct {
	cfg     Config
	deploys *deploy.Registry
	queue   *queue.Queue
	worker  *worker.Worker
	client  *Client
	// scheduler is nil with Config.NoSchedules.
	scheduler *schedule.Scheduler

	switching sync.Mutex // registry and worker follow one Switch after the other
}

// New returns an engine that has not begun. Errors: X_MODULE_MISSING for a job
// that the deployment cannot serve, X_INVALID for a missing store or a lease
// too short, and the registerer's.
func New(cfg Config) (*Engine, error) {
	if cfg.Store == nil || cfg.Deployment.Manifest == nil {
		return nil, &abi.Error{Code: job.CodeInvalid, Message: "an engine needs a store and a deployment"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Lease == 0 {
		cfg.Lease = cfg.Deployment.Manifest.Runner.Lease
	}
	if cfg.Drain == 0 {
		cfg.Drain = cfg.Deployment.Manifest.Runner.Drain
	}
	if cfg.Drain == 0 {
		cfg.Drain = 25 * time.Second
	}
	m, err := metrics.New(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	deploys, err := deploy.New(deploy.Config{Loader: cfg.Loader, Close: cfg.CloseGuest}, cfg.Deployment)
	if err != nil {
		return nil, err
	}
	q := queue.New(queue.Config{Store: cfg.Store, Manifest: deploys.Manifest, Logger: cfg.Logger, Metrics: m, Tracer: cfg.Tracer})
	e := &Engine{cfg: cfg, deploys: deploys, queue: q, client: newClient(cfg.Store, q)}
	e.worker, err = worker.New(worker.Config{
		Store: cfg.Store, Queue: q, Deploy: deploys, Lease: cfg.Lease, Queues: cfg.Queues, Alone: cfg.Alone,
		Logger: cfg.Logger, Metrics: m, Tracer: cfg.Tracer, Settled: e.client.settled,
	})
	if err != nil {
		return nil, err
	}
	q.Use(e.worker)
	e.client.cancelled = e.worker.Cancelled
	if !cfg.NoSchedules {
		if err := e.schedules(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// schedules makes the scheduler.
func (e *Engine) schedules() error {
	m, err := metrics.NewSchedules(e.cfg.Registerer)
	if err != nil {
		return err
	}
	e.scheduler, err = schedule.New(schedule.Config{
		Store: e.cfg.Store, Queue: e.queue, Manifest: e.deploys.Manifest, Alone: e.cfg.Alone, Logger: e.cfg.Logger, Metrics: m,
		Tracer: e.cfg.Tracer,
	})
	return err
}

// Client enqueues, reads and operates; it works before Start and after Stop.
func (e *Engine) Client() *Client { return e.client }

// Deployment is what new runs start on.
func (e *Engine) Deployment() Deployment { return e.deploys.Current() }

// Start registers the worker and begins to claim and to fire schedules; ctx
// bounds the registration. Errors: the store's; X_INVALID if it runs already.
func (e *Engine) Start(ctx context.Context) error {
	if e.scheduler == nil {
		return e.worker.Start(ctx)
	}
	// First, so that a stop that overtakes the registration ends it too.
	if err := e.scheduler.Start(); err != nil {
		return err
	}
	err := e.worker.Start(ctx)
	if err != nil {
		e.quiesce()
	}
	return err
}

// Leased reports whether this process holds a lease under which it claims runs:
// whether it takes work.
func (e *Engine) Leased() bool { return e.worker.Leased() }

// Trouble is why this process cannot write what it must: a full disk, a database
// that is away. Nil when its last renewal and its last claim landed. What a
// process that only enqueues meets, its callers hear.
func (e *Engine) Trouble() error { return e.worker.Trouble() }

// Switch serves next from now on and answers what was served before. Attempts
// under way finish on the module they began with.
// Errors: X_MODULE_MISSING, also after a drain; X_INVALID without a manifest. Nothing
// has changed then.
func (e *Engine) Switch(next Deployment) (Deployment, error) {
	if next.Manifest == nil {
		return Deployment{}, &abi.Error{Code: job.CodeInvalid, Message: "a deployment needs a manifest"}
	}
	e.switching.Lock()
	defer e.switching.Unlock()
	before, err := e.deploys.Switch(next)
	if err != nil {
		return Deployment{}, err
	}
	e.worker.Configure(next.Manifest)
	if e.scheduler != nil {
		e.scheduler.Kick()
	}
	return before, nil
}

// Drain stops claiming, lets attempts finish for as long as Config.Drain and
// ctx's deadline allow, aborts the rest uncounted, and closes what it opened.
// Order: schedules and claims, attempts, their writes, the registration, the
// guests. The error says that a write was still open at the end.
func (e *Engine) Drain(ctx context.Context) error {
	budget := e.cfg.Drain
	if deadline, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(deadline))
	}
	e.quiesce()
	e.worker.Drain(max(budget, 0))
	return e.flush()
}

// Stop is Drain without patience: attempts are aborted now, uncounted. A Drain
// under way ends with it.
func (e *Engine) Stop() error {
	e.quiesce()
	e.worker.Stop()
	return e.flush()
}

// Finish stops claiming and waits for the attempts under way as long as they
// take.
func (e *Engine) Finish() error {
	e.quiesce()
	e.worker.Finish()
	return e.flush()
}

// quiesce has no schedule fired any more; flush waits for what is under way.
func (e *Engine) quiesce() {
	if e.scheduler != nil {
		e.scheduler.Quiesce()
	}
}

// flushPatience bounds the wait for writes of clients that share the queue, and
// for a round of schedules.
const flushPatience = 5 * time.Second

func (e *Engine) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	var err error
	if e.scheduler != nil {
		err = e.scheduler.Stop(ctx)
	}
	return errors.Join(err, e.queue.Wait(ctx))
}

// Close stops the engine and closes the guests. The store stays open.
func (e *Engine) Close() error {
	err := e.Stop()
	e.deploys.Close()
	return err
}
