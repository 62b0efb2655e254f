package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
)

// Params are a benchmark's size and place.
type Params struct {
	Dir      string // for manifest, modules and, without Database, the database; must exist
	Database string // URL of a database (Postgres: a schema) that does not exist yet; "" is a file in Dir
	Jobs     int    // runs inserted and worked off
	Guest    string // what to call the module in the result
	Module   []byte
	// Progress, if not nil, hears what is measured next.
	Progress func(what string)
}

// Result is what was measured.
type Result struct {
	InsertPerS float64 `json:"insert_per_s"` // runs, in batches of 1,000
	WorkPerS   float64 `json:"work_per_s"`   // runs of a handler that does nothing
	StepsPerS  float64 `json:"steps_per_s"`  // durable steps, five a run, 50 runs at a time
	LatencyMS  Latency `json:"latency_ms"`   // from the enqueue's call to the handler's first line
	Store      string  `json:"store"`
	Jobs       int     `json:"jobs"`
	Guest      string  `json:"guest"`
}

// Latency is of single runs on an idle server, in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

const (
	insertBatch = 1000
	maxStepRuns = 2000 // 10,000 steps
	latencyRuns = 300
)

const manifestText = `[queues.bulk]
workers = 500
[queues.steps]
workers = 50
[queues.single]
workers = 4

[modules.guest]
path = "guest.wasm"

[jobs.bulk]
module = "guest"
handler = "noop"
queue = "bulk"
tenant = "none"
key = "{run.id}"

[jobs.steps]
module = "guest"
handler = "steps"
queue = "steps"
tenant = "none"
key = "{run.id}"

[jobs.hello]
module = "guest"
handler = "hello"
queue = "single"
tenant = "none"
key = "{run.id}"
`

// Run measures. It leaves its files in p.Dir.
func Run(ctx context.Context, p Params) (Result, error) {
	r := Result{Jobs: p.Jobs, Guest: p.Guest}
	if p.Progress == nil {
		p.Progress = func(string) {}
	}
	manifestPath := filepath.Join(p.Dir, "jobs.toml")
	err := errors.Join(
		os.WriteFile(filepath.Join(p.Dir, "guest.wasm"), p.Module, 0o600),
		os.WriteFile(manifestPath, []byte(manifestText), 0o600))
	if err != nil {
		return r, fmt.Errorf("prepare the benchmark: %w", err)
	}
	if p.Database == "" {
		p.Database = "sqlite:" + filepath.Join(p.Dir, "bench.db")
	}
	if err := migrate(ctx, p.Database); err != nil {
		return r, err
	}
	p.Progress(fmt.Sprintf("inserting %d runs", p.Jobs))
	if r.InsertPerS, r.Store, err = insert(ctx, p, manifestPath); err != nil {
		return r, err
	}
	started := newStarts()
	p.Progress("working them off")
	s, err := app.StartServer(ctx, app.ServerConfig{Manifest: manifestPath, Database: p.Database, Getenv: func(string) string { return "" }, Logger: started.logger()})
	if err != nil {
		return r, err
	}
	b := &bench{client: s.Client(), started: started, progress: p.Progress}
	err = b.measure(ctx, p, &r)
	for _, f := range []*float64{&r.InsertPerS, &r.WorkPerS, &r.StepsPerS} {
		*f = math.Round(*f)
	}
	return r, errors.Join(err, s.Drain(context.WithoutCancel(ctx)))
}

// migrate makes the tables of a database that serve would not make.
func migrate(ctx context.Context, database string) error {
	db, err := app.FindDatabase(app.DatabaseParams{Flag: database})
	if err != nil || !db.Shared() {
		return err
	}
	m, err := app.NewMigrator(db)
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx)
	return err
}

// bench is a server being measured.
type bench struct {
	client   *engine.Client
	started  *starts
	progress func(what string)
}

func (b *bench) measure(ctx context.Context, p Params, r *Result) (err error) {
	if r.WorkPerS, err = b.rate(ctx, "bulk", p.Jobs); err != nil {
		return err
	}
	steps := min(p.Jobs, maxStepRuns)
	p.Progress(fmt.Sprintf("making %d durable steps", steps*StepsPerRun))
	if err := enqueue(ctx, b.client, "steps", steps); err != nil {
		return err
	}
	if r.StepsPerS, err = b.rate(ctx, "steps", steps); err != nil {
		return err
	}
	r.StepsPerS *= StepsPerRun
	p.Progress(fmt.Sprintf("enqueueing %d single runs", latencyRuns))
	r.LatencyMS, err = b.latency(ctx)
	return err
}

// insert measures inserting runs that nobody works yet.
func insert(ctx context.Context, p Params, manifestPath string) (perS float64, name string, err error) {
	m, report := manifest.Load(manifestPath)
	if report != nil {
		return 0, "", report
	}
	db, err := app.FindDatabase(app.DatabaseParams{Flag: p.Database})
	if err != nil {
		return 0, "", err
	}
	s, err := app.OpenStore(ctx, app.StoreParams{Database: db, Create: true})
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c, err := app.NewClient(s, m)
	if err != nil {
		return 0, "", err
	}
	begin := time.Now()
	if err := enqueue(ctx, c, "bulk", p.Jobs); err != nil {
		return 0, "", err
	}
	return float64(p.Jobs) / time.Since(begin).Seconds(), s.Name(), nil
}

func enqueue(ctx context.Context, c *engine.Client, jobName string, n int) error {
	batch := make([]engine.Request, 0, insertBatch)
	for left := n; left > 0; left -= len(batch) {
		batch = batch[:0]
		for range min(left, insertBatch) {
			batch = append(batch, engine.Request{Job: jobName, Input: []byte(`{"n":1}`), EnqueuedBy: "bench"})
		}
		if _, err := c.EnqueueMany(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// The queue is looked at while it is worked off, but seldom: counting competes
// with the work, and may take at most a fiftieth of the time.
const (
	pollEvery = 200 * time.Millisecond
	pollShare = 50
)

// rate waits for n runs of the job to be done and answers how many a second
// were, from the first claim to the last settle.
func (b *bench) rate(ctx context.Context, jobName string, n int) (float64, error) {
	for {
		began := time.Now()
		stats, err := b.client.Stats(ctx)
		if err != nil {
			return 0, err
		}
		i := slices.IndexFunc(stats.Queues, func(q store.QueueStats) bool { return q.Queue == jobName })
		if i >= 0 {
			q := stats.Queues[i]
			if q.Dead+q.Failed+q.Cancelled > 0 {
				return 0, fmt.Errorf("%d of the %d runs of job %q failed", q.Dead+q.Failed+q.Cancelled, n, jobName)
			}
			if q.Done >= int64(n) {
				break
			}
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(max(pollEvery, pollShare*time.Since(began))):
		}
	}
	b.progress("reading what the store recorded")
	var first, last time.Time
	for before := ""; ; {
		page, err := b.client.List(ctx, store.ListParams{Job: jobName, State: job.Done, Before: before, Limit: 1000})
		if err != nil {
			return 0, err
		}
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			if first.IsZero() || r.StartedAt.Before(first) {
				first = r.StartedAt
			}
			if r.FinishedAt.After(last) {
				last = r.FinishedAt
			}
		}
		before = page[len(page)-1].ID
	}
	return float64(n) / max(last.Sub(first), time.Millisecond).Seconds(), nil
}

// startPatience is how long a handler may take to say that it has begun.
const startPatience = time.Minute

// began is when the handler of the run said so. One that fails before never does.
func (b *bench) began(ctx context.Context, id string) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("run %s has not begun within %v", id, startPatience))
	defer cancel()
	return b.started.wait(ctx, id)
}

// latency enqueues one run at a time, each once the one before has settled.
func (b *bench) latency(ctx context.Context) (Latency, error) {
	all := make([]float64, 0, latencyRuns)
	for range latencyRuns {
		begin := time.Now()
		res, err := b.client.Enqueue(ctx, engine.Request{Job: "hello", Input: []byte(`{"n":1}`), EnqueuedBy: "bench"})
		if err != nil {
			return Latency{}, err
		}
		at, err := b.began(ctx, res.ID)
		if err != nil {
			return Latency{}, err
		}
		all = append(all, float64(at.Sub(begin).Microseconds())/1000)
		run, err := b.client.Wait(ctx, res.ID)
		if err != nil {
			return Latency{}, err
		}
		if run.State != job.Done {
			return Latency{}, fmt.Errorf("run %s ended %s: %s", run.ID, run.State, run.Error.Message)
		}
	}
	slices.Sort(all)
	return Latency{P50: all[len(all)/2], P99: all[len(all)*99/100]}, nil
}
