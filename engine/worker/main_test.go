package worker_test

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/deploy"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/internal/leaktest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/worker"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// handlers are a guest's, by name.
type handlers = map[string]enginetest.Handler

// task shortens the handlers of the tests.
type task = enginetest.Task

// rig is a database in memory, a queue over it, and workers. Its tests run in a
// synctest bubble, so that its time is theirs.
type rig struct {
	*testing.T
	db     *enginetest.Store
	guest  *enginetest.Guest
	deploy *deploy.Registry
	queue  *queue.Queue
	events *enginetest.Events
}

func newRig(t *testing.T, h handlers, change func(*manifest.Manifest)) *rig {
	t.Helper()
	r := &rig{T: t, db: &enginetest.Store{Store: enginetest.Memory(t)}, events: &enginetest.Events{}}
	r.guest = &enginetest.Guest{Name: "v1", Handlers: h}
	var err error
	r.deploy, err = deploy.New(deploy.Config{}, enginetest.Serve(r.guest, change))
	r.must(err)
	r.queue = queue.New(queue.Config{Store: r.db, Manifest: r.deploy.Manifest, Logger: r.events.Logger()})
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// work starts a worker over db that ends with the test.
func (r *rig) work(change func(*worker.Config)) *worker.Worker {
	r.Helper()
	w := r.idle(change)
	r.must(w.Start(r.Context()))
	return w
}

// idle is a worker that has not started.
func (r *rig) idle(change func(*worker.Config)) *worker.Worker {
	r.Helper()
	cfg := worker.Config{Store: r.db, Queue: r.queue, Deploy: r.deploy, Logger: r.events.Logger(), Lease: 30 * time.Second}
	if change != nil {
		change(&cfg)
	}
	w, err := worker.New(cfg)
	r.must(err)
	r.Cleanup(w.Stop)
	return w
}

// through gives a worker a queue of its own over another view of the database.
func (r *rig) through(db *enginetest.Store) func(*worker.Config) {
	return func(c *worker.Config) {
		c.Store = db
		c.Queue = queue.New(queue.Config{Store: db, Manifest: r.deploy.Manifest})
	}
}

// view is the same database, to be disturbed on its own.
func (r *rig) view() *enginetest.Store { return &enginetest.Store{Store: r.db.Store} }

func (r *rig) enqueue(jobName string) string {
	r.Helper()
	res, err := r.queue.Enqueue(r.Context(), queue.Request{Job: jobName})
	r.must(err)
	return res.ID
}

func (r *rig) get(id string) job.Run {
	r.Helper()
	run, err := r.db.Store.Get(r.Context(), id)
	r.must(err)
	return run
}

// settles waits until the run has ended, in the rig's time.
func (r *rig) settles(id string) job.Run {
	r.Helper()
	return r.reaches(id, job.Done, job.Failed, job.Dead, job.Cancelled)
}

// reaches waits, in the rig's time, until the run is in one of the states.
func (r *rig) reaches(id string, states ...job.State) job.Run {
	r.Helper()
	for n := range 5000 {
		run := r.get(id)
		for _, s := range states {
			if run.State == s {
				synctest.Wait() // a run that is running has begun, one that ended is forgotten
				return run
			}
		}
		wait := 5 * time.Millisecond
		if n > 400 {
			wait = time.Second
		}
		time.Sleep(max(wait, time.Until(run.RunAt)/2))
	}
	run := r.get(id)
	r.Fatalf("run %s is %s (%+v), want %v; log:\n%v", id, run.State, run.Error, states, r.events.Messages())
	return job.Run{}
}

// ended checks how a run ended.
func (r *rig) ended(run job.Run, state job.State, code string, attempt int) {
	r.Helper()
	if run.State != state || run.Error.Code != code || run.Attempt != attempt {
		r.Errorf("the run is %s with %q (%s) at attempt %d; want %s with %q at attempt %d",
			run.State, run.Error.Code, run.Error.Message, run.Attempt, state, code, attempt)
	}
}

func (r *rig) logged(event string, want int) {
	r.Helper()
	if got := r.events.Count(event); got != want {
		r.Errorf("%s was logged %d times, want %d; log:\n%v", event, got, want, r.events.Messages())
	}
}

// policy changes the retry policy of every job.
func policy(change func(*job.RetryPolicy)) func(*manifest.Manifest) {
	return func(m *manifest.Manifest) {
		for _, j := range m.Jobs {
			change(&j.Retry)
		}
	}
}

// slots sets the slots of the queue that every job is in.
func slots(n int) func(*manifest.Manifest) {
	return func(m *manifest.Manifest) {
		m.Queues["default"] = manifest.Queue{Name: "default", Workers: n}
	}
}

// onOp disturbs one operation only.
func onOp(op string, f func(ctx context.Context, call func() error) error) func(context.Context, string, func() error) error {
	return func(ctx context.Context, got string, call func() error) error {
		if got == op {
			return f(ctx, call)
		}
		return call()
	}
}

// hang answers when ctx ends, as a dead connection does.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// claimBy takes the run in the name of a worker that is only a row.
func (r *rig) claimBy(id string) []job.Run {
	r.Helper()
	r.must(r.db.Store.Register(r.Context(), store.RegisterParams{ID: id, Lease: 30 * time.Second}))
	res, err := r.db.Store.Claim(r.Context(), store.ClaimParams{Worker: id, Queues: []store.QueueLimit{{Queue: "default", Limit: 10}}})
	r.must(err)
	return res.Runs
}
