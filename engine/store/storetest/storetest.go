// Package storetest is what a store has to pass: Run for meaning, Hammer for
// meaning under concurrency, Bench for speed. Every store runs them unchanged;
// what only one database has is a bug or belongs into that store's own tests.
// It owns no store and imports none.
//
// A rule of the behaviour contract (docs/behaviour.md) that a test pins is named
// in the test's comment by its id, as in (C7).
package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// DB is a database under test: empty at first, alone in its world, and closed
// by whoever opened it when the test ends.
type DB interface {
	store.Store
	// Advance moves the store's clock forward. The clock may run on its own
	// besides, but by less than a second in a test.
	Advance(d time.Duration)
	// PlantRunState and PlantStepStatus write what another build could have
	// written: a text that this one does not know.
	PlantRunState(tb testing.TB, runID, state string)
	PlantStepStatus(tb testing.TB, runID, step, status string)
}

// Factory opens an empty DB for one test.
type Factory func(tb testing.TB) DB

// Clock is a clock for stores that take theirs from outside. It stands still
// until it is advanced. Safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock starts at an instant that no test depends on.
func NewClock() *Clock {
	return &Clock{now: time.Date(2031, 5, 17, 8, 30, 0, 250e6, time.UTC)}
}

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Run checks a store against its contract.
func Run(t *testing.T, open Factory) {
	for _, part := range []struct {
		name  string
		tests []test
	}{
		{"Enqueue", enqueueTests},
		{"EnqueueIf", enqueueIfTests},
		{"Claim", claimTests},
		{"Limits", limitTests},
		{"Pause", pauseTests},
		{"Settle", settleTests},
		{"Follow", followTests},
		{"Logs", logTests},
		{"Steps", stepTests},
		{"Events", eventTests},
		{"Invoke", invokeTests},
		{"Parked", parkedTests},
		{"Handover", handoverTests},
		{"Workers", workerTests},
		{"Reclaim", reclaimTests},
		{"Operate", operateTests},
		{"Undo", undoTests},
		{"Schedules", scheduleTests},
		{"Verbs", verbTests},
		{"List", listTests},
		{"Stats", statsTests},
		{"Wakes", wakeTests},
		{"Concurrent", concurrentTests},
	} {
		t.Run(part.name, func(t *testing.T) {
			for _, tc := range part.tests {
				t.Run(tc.name, func(t *testing.T) { tc.run(newEnv(t, open)) })
			}
		})
	}
}

type test struct {
	name string
	run  func(e *env)
}

// env is one test's database and the shorthand for using it. Its methods end
// the test on errors they do not expect.
type env struct {
	*testing.T
	db  DB
	ctx context.Context
	ids int
}

func newEnv(t *testing.T, open Factory) *env {
	return &env{T: t, db: open(t), ctx: t.Context()}
}

// Names that most tests use.
const (
	jobA   = "mail/send"
	queueA = "default"
	lease  = 30 * time.Second
)

// uid is a time-ordered UUID: a higher n is a later id.
func uid(n int) string {
	return fmt.Sprintf("01970000-%04x-7000-8000-%012x", n>>16&0xffff, n&0xffff)
}

// run fills what a test does not care about.
func (e *env) params(p store.EnqueueParams) store.EnqueueParams {
	if p.ID == "" {
		e.ids++
		p.ID = uid(e.ids)
	}
	if p.Job == "" {
		p.Job = jobA
	}
	if p.Queue == "" {
		p.Queue = queueA
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 3
	}
	if p.Input == nil {
		p.Input = []byte(`{}`)
	}
	return p
}

func (e *env) enqueue(batch ...store.EnqueueParams) []store.EnqueueResult {
	e.Helper()
	filled := make([]store.EnqueueParams, len(batch))
	for i, p := range batch {
		filled[i] = e.params(p)
	}
	res, err := e.db.Enqueue(e.ctx, filled)
	if err != nil {
		e.Fatalf("enqueue: %v", err)
	}
	if len(res) != len(batch) {
		e.Fatalf("enqueue of %d answered %d results", len(batch), len(res))
	}
	return res
}

// add enqueues one run that must be new, and returns its id.
func (e *env) add(p store.EnqueueParams) string {
	e.Helper()
	res := e.enqueue(p)[0]
	if res.Deduped {
		e.Fatalf("enqueue was answered with run %s, want a new one", res.ID)
	}
	return res.ID
}

func (e *env) register(workers ...string) {
	e.Helper()
	for _, w := range workers {
		err := e.db.Register(e.ctx, store.RegisterParams{ID: w, Host: "host", PID: 1, Queues: []string{queueA}, Lease: lease})
		if err != nil {
			e.Fatalf("register %s: %v", w, err)
		}
	}
}

func (e *env) claimAll(worker string, queues ...store.QueueLimit) store.ClaimResult {
	e.Helper()
	res, err := e.db.Claim(e.ctx, store.ClaimParams{Worker: worker, Queues: queues})
	if err != nil {
		e.Fatalf("claim: %v", err)
	}
	return res
}

// claim claims of the usual queue for a live worker.
func (e *env) claim(worker string, limit int) []job.Run {
	e.Helper()
	res := e.claimAll(worker, store.QueueLimit{Queue: queueA, Limit: limit})
	if res.WorkerGone {
		e.Fatalf("claim: worker %s is gone", worker)
	}
	return res.Runs
}

// claimOne claims exactly one run, of a worker that it registers if need be.
func (e *env) claimOne(worker string) job.Run {
	e.Helper()
	runs := e.claim(worker, 1)
	if len(runs) != 1 {
		e.Fatalf("claimed %d runs, want 1", len(runs))
	}
	return runs[0]
}

// start registers a worker, enqueues a run and claims it.
func (e *env) start(worker string, p store.EnqueueParams) job.Run {
	e.Helper()
	e.register(worker)
	id := e.add(p)
	r := e.claimOne(worker)
	if r.ID != id {
		e.Fatalf("claimed run %s, want %s", r.ID, id)
	}
	return r
}

func refOf(r job.Run) job.Ref { return job.Ref{RunID: r.ID, Worker: r.Worker, Claim: r.Claims} }

func (e *env) settle(p store.SettleParams) store.SettleResult {
	e.Helper()
	res, err := e.db.Settle(e.ctx, []store.SettleParams{p})
	if err != nil {
		e.Fatalf("settle: %v", err)
	}
	if len(res) != 1 {
		e.Fatalf("settle of one answered %d results", len(res))
	}
	return res[0]
}

// finish settles an attempt that must land.
func (e *env) finish(r job.Run, outcome job.Outcome, to job.State) store.SettleResult {
	e.Helper()
	res := e.settle(store.SettleParams{Ref: refOf(r), Outcome: outcome, To: to})
	if !res.Landed {
		e.Fatalf("settling run %s as %s did not land", r.ID, outcome)
	}
	return res
}

func (e *env) saveStep(p store.StepParams) store.StepResult {
	e.Helper()
	if p.Kind == "" {
		p.Kind = job.KindStep
	}
	if p.Status == "" {
		p.Status = job.StepCompleted
	}
	res, err := e.db.SaveSteps(e.ctx, []store.StepParams{p})
	if err != nil {
		e.Fatalf("save step %s: %v", p.Name, err)
	}
	if len(res) != 1 {
		e.Fatalf("saving one step answered %d results", len(res))
	}
	return res[0]
}

func (e *env) steps(runID string) []job.Step {
	e.Helper()
	steps, err := e.db.ListSteps(e.ctx, runID)
	if err != nil {
		e.Fatalf("list steps: %v", err)
	}
	return steps
}

func (e *env) attempts(runID string) []job.AttemptRecord {
	e.Helper()
	recs, err := e.db.Attempts(e.ctx, runID)
	if err != nil {
		e.Fatalf("attempts: %v", err)
	}
	return recs
}

func (e *env) get(id string) job.Run {
	e.Helper()
	r, err := e.db.Get(e.ctx, id)
	if err != nil {
		e.Fatalf("get %s: %v", id, err)
	}
	return r
}

func (e *env) wantState(id string, want job.State) job.Run {
	e.Helper()
	r := e.get(id)
	if r.State != want {
		e.Fatalf("run %s is %s, want %s", id, r.State, want)
	}
	return r
}

func (e *env) now() time.Time {
	e.Helper()
	now, err := e.db.Now(e.ctx)
	if err != nil {
		e.Fatalf("now: %v", err)
	}
	return now
}

// wantTime allows what a clock that runs on its own may add.
func (e *env) wantTime(what string, got, want time.Time) {
	e.Helper()
	if d := got.Sub(want); d < 0 || d > time.Second {
		e.Fatalf("%s is %s, want %s", what, got, want)
	}
}

func (e *env) wantCode(err error, code string) {
	e.Helper()
	if got := abi.CodeOf(err); got != code {
		e.Fatalf("error is %v (code %q), want %s", err, got, code)
	}
}

// wantRefused is wantCode for an error that says nothing was done.
func (e *env) wantRefused(err error, code string) {
	e.Helper()
	e.wantCode(err, code)
	if errors.Is(err, store.ErrUnknown) {
		e.Fatalf("the refusal %v calls its outcome unknown", err)
	}
}

func ids(runs []job.Run) []string {
	out := make([]string, len(runs))
	for i, r := range runs {
		out[i] = r.ID
	}
	return out
}
