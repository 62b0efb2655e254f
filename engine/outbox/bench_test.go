package outbox_test

import (
	"context"
	"testing"

	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store/postgres"
	pgoutbox "github.com/jobrunner/runner/engine/store/postgres/outbox"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// postgresQueue has the world's queue in a Postgres database of its own.
func postgresQueue(b *testing.B, w *world) {
	url := pgtest.Database(b)
	m, err := postgres.OpenMigrator(postgres.Config{URL: url})
	w.check(err)
	_, err = m.Migrate(context.Background())
	w.check(err)
	runs, err := postgres.Open(context.Background(), postgres.Config{URL: url})
	w.check(err)
	b.Cleanup(func() { runs.Close() })
	w.runs.Store = runs
	w.queue = queue.New(queue.Config{Store: runs, Manifest: func() *manifest.Manifest { return w.manifest }})
}

// How many staged rows one relay publishes in a second, from one Postgres
// database to another.
func BenchmarkRelay(b *testing.B) {
	w := newWorld(b)
	postgresQueue(b, w)
	r := w.relay(nil)
	const n = 2000
	for b.Loop() {
		b.StopTimer()
		w.stage(numbered(n)...)
		b.StartTimer()
		if res := w.drain(r); res.Published != n {
			b.Fatalf("%+v", res)
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "rows/s")
}

// From the commit of an idle application to the run in the queue.
func BenchmarkCommitToRun(b *testing.B) {
	w := newWorld(b)
	postgresQueue(b, w)
	published := make(chan struct{}, 1)
	r := w.relay(func(c *outbox.Config) {
		c.Queue = queueFunc(func(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error) {
			v, err := w.queue.EnqueueEach(ctx, requests)
			published <- struct{}{}
			return v, err
		})
	})
	listening := make(chan struct{}, 1)
	stop := w.outbox.Wakes(func() {
		select {
		case listening <- struct{}{}:
		default:
		}
	})
	defer stop()
	<-listening
	w.check(r.Start())
	defer func() { w.check(r.Stop(context.Background())) }()
	for b.Loop() {
		b.StopTimer()
		tx, err := w.app.Begin(context.Background())
		w.check(err)
		_, err = pgoutbox.Schema(w.cfg.Schema).EnqueueTx(context.Background(), tx, pgoutbox.Request{Job: "free"})
		w.check(err)
		_, err = tx.Exec(context.Background(), "SELECT set_config('runner.outbox_told', '', false)") // as a session that was quiet
		w.check(err)
		b.StartTimer()
		w.check(tx.Commit(context.Background()))
		<-published
	}
}
