package engine_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/sqlite"
)

// BenchmarkRuns measures whole runs of handlers that do nothing, so that what
// is left is the engine and its store. Runs are enqueued before the clock
// starts.
func BenchmarkRuns(b *testing.B) {
	handlers := map[string]enginetest.Handler{
		"noop": func(*enginetest.Task) (any, error) { return nil, nil },
		"step": func(t *enginetest.Task) (any, error) {
			return t.Step("one", func() (any, error) { return 1, nil })
		},
	}
	for _, c := range []struct{ name, file, handler string }{
		{"memory/noop", "", "noop"},
		{"memory/step", "", "step"},
		{"file/noop", "runner.db", "noop"},
		{"file/step", "runner.db", "step"},
	} {
		b.Run(c.name, func(b *testing.B) {
			path := sqlite.Memory
			if c.file != "" {
				path = filepath.Join(b.TempDir(), c.file)
			}
			db, err := sqlite.Open(b.Context(), sqlite.Config{Path: path, Create: true})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			g := &enginetest.Guest{Name: "bench", Handlers: handlers}
			e, err := engine.New(engine.Config{Store: db, Deployment: enginetest.Serve(g, func(m *manifest.Manifest) {
				m.Queues["default"] = manifest.Queue{Name: "default", Workers: 200}
			})})
			if err != nil {
				b.Fatal(err)
			}
			enqueue(b, e, c.handler)
			runAll(b, e)
		})
	}
}

// enqueue fills the queue with b.N runs.
func enqueue(b *testing.B, e *engine.Engine, jobName string) {
	requests := make([]engine.Request, 0, 5000)
	for left := b.N; left > 0; left -= len(requests) {
		requests = requests[:0]
		for range min(left, 5000) {
			requests = append(requests, engine.Request{Job: jobName, Input: []byte(`{"n":1}`)})
		}
		if _, err := e.Client().EnqueueMany(b.Context(), requests); err != nil {
			b.Fatal(err)
		}
	}
}

// runAll starts e and stops the clock when the queue is empty.
func runAll(b *testing.B, e *engine.Engine) {
	var last atomic.Bool
	b.ResetTimer()
	if err := e.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	for !last.Load() {
		s, err := e.Client().Stats(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for _, q := range s.Queues {
			if q.Done == int64(b.N) {
				last.Store(true)
			}
		}
		if !last.Load() {
			wait(b, e)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	if err := e.Close(); err != nil {
		b.Fatal(err)
	}
}

// wait follows the newest run that is still live.
func wait(b *testing.B, e *engine.Engine) {
	for _, s := range []job.State{job.Ready, job.Running} {
		runs, err := e.Client().List(b.Context(), store.ListParams{State: s, Limit: 1})
		if err != nil {
			b.Fatal(err)
		}
		if len(runs) > 0 {
			if _, err := e.Client().Wait(b.Context(), runs[0].ID); err != nil {
				b.Fatal(err)
			}
			return
		}
	}
}

// BenchmarkEnqueue measures single enqueues of 64 callers at a time, whose
// writes share commits.
func BenchmarkEnqueue(b *testing.B) {
	for _, c := range []struct{ name, file string }{{"memory", ""}, {"file", "runner.db"}} {
		b.Run(c.name, func(b *testing.B) {
			path := sqlite.Memory
			if c.file != "" {
				path = filepath.Join(b.TempDir(), c.file)
			}
			db, err := sqlite.Open(b.Context(), sqlite.Config{Path: path, Create: true})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			g := &enginetest.Guest{Name: "bench", Handlers: map[string]enginetest.Handler{"noop": nil}}
			client, err := engine.NewClient(engine.ClientConfig{Store: db, Manifest: enginetest.Serve(g, nil).Manifest})
			if err != nil {
				b.Fatal(err)
			}
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := client.Enqueue(b.Context(), engine.Request{Job: "noop", Input: []byte(`{"n":1}`)}); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}
