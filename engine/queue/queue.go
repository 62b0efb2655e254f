package queue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// Store is what the queue asks of a database.
type Store interface {
	store.Admin
	store.Auditor
	store.Claimer
	store.Enqueuer
	store.Events
	store.Pauser
	store.Settler
	store.Steps
}

// Config is fixed at New.
type Config struct {
	Store Store
	// Manifest answers the current one. It is called for every enqueue and may
	// answer another one each time.
	Manifest func() *manifest.Manifest
	Logger   *slog.Logger     // default discards
	Metrics  *metrics.Metrics // nil records nothing
	Tracer   trace.Tracer     // nil makes no spans
}

// Queue is safe for concurrent use. It needs no start; Wait before the store is
// closed.
type Queue struct {
	store    Store
	manifest func() *manifest.Manifest
	log      *slog.Logger
	metrics  *metrics.Metrics
	tracer   trace.Tracer
	places   Places // nil: runs are claimed

	enqueues batcher[store.EnqueueParams, store.EnqueueResult]
	settles  batcher[store.SettleParams, store.SettleResult]
	steps    batcher[store.StepParams, store.StepResult]
	events   batcher[store.EventParams, store.EventResult]

	// Instead of the latter two, with a store.Recorder.
	together bool
	records  batcher[record, recorded]
}

// New returns a queue over a store.
func New(cfg Config) *Queue {
	q := &Queue{store: cfg.Store, manifest: cfg.Manifest, log: cfg.Logger, metrics: cfg.Metrics, tracer: cfg.Tracer}
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	q.enqueues = batcher[store.EnqueueParams, store.EnqueueResult]{
		write:   q.store.Enqueue,
		size:    func(p *store.EnqueueParams) int { return len(p.Input) },
		observe: func(n int) { q.metrics.Batch("enqueue", n) },
		again:   func(p *store.EnqueueParams) { p.Minted = false },
	}
	q.settles = batcher[store.SettleParams, store.SettleResult]{
		write:   q.store.Settle,
		size:    settleSize,
		observe: func(n int) { q.metrics.Batch("settle", n) },
	}
	lasting(q, &q.settles)
	q.steps = batcher[store.StepParams, store.StepResult]{
		write:   q.store.SaveSteps,
		size:    stepSize,
		observe: func(n int) { q.metrics.Batch("step", n) },
	}
	lasting(q, &q.steps)
	if to, ok := q.store.(store.Recorder); ok {
		q.together = true
		q.records = batcher[record, recorded]{
			write: q.recordInto(to), size: recordSize, later: func(r *record) bool { return r.settle != nil },
			observe: func(int) {},
		}
		lasting(q, &q.records)
	}
	q.events = batcher[store.EventParams, store.EventResult]{
		write:   q.store.Publish,
		size:    func(p *store.EventParams) int { return len(p.Payload) },
		observe: func(n int) { q.metrics.Batch("publish", n) },
	}
	return q
}

// lasting makes b one of what is known about attempts: it is written for as long as
// it takes, and said when that is long.
func lasting[P, R any](q *Queue, b *batcher[P, R]) {
	b.outlasts = mendable
	b.stalled = q.waits("jobs.record.stalled", "jobs.record.recovered")
	b.holding = q.waits("jobs.record.held", "jobs.record.released")
}

// waits says that entries wait to be written, and why, and when that is over.
func (q *Queue) waits(begun, over string) func(err error, entries int) {
	return func(err error, entries int) {
		if err == nil {
			q.log.Info(over)
			return
		}
		q.log.Warn(begun, slog.Int("waiting", entries), slog.Any("error", err))
	}
}

// Wait returns once no write is pending or under way, or when ctx ends.
func (q *Queue) Wait(ctx context.Context) error {
	if err := q.steps.wait(ctx); err != nil {
		return err
	}
	if err := q.settles.wait(ctx); err != nil {
		return err
	}
	if err := q.records.wait(ctx); err != nil {
		return err
	}
	if err := q.events.wait(ctx); err != nil {
		return err
	}
	return q.enqueues.wait(ctx)
}

// Trouble is why what is known about attempts cannot be written and has been
// tried again for more than a second: a full disk can refuse a record while
// renewals and claims still find room. Nil while nothing waits so.
func (q *Queue) Trouble() error {
	return cmp.Or(q.records.stuck(), q.settles.stuck(), q.steps.stuck())
}

// Manifest is the current one.
func (q *Queue) Manifest() *manifest.Manifest { return q.manifest() }

// declared is the job of that name in the current manifest.
func (q *Queue) declared(name string) (*manifest.Job, error) {
	j, ok := q.manifest().Jobs[name]
	if !ok {
		return nil, &abi.Error{
			Code:    job.CodeUnknownJob,
			Message: fmt.Sprintf("no job is named %q", clip(name, 100)),
			Fix:     "declare it under [jobs] in jobs.toml, or correct the name",
		}
	}
	return j, nil
}

// clip cuts s for a message.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
