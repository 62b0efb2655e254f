package outbox_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
	pgoutbox "github.com/jobrunner/runner/engine/store/postgres/outbox"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// The server of both databases crashes in the middle of a batch and comes back:
// the relay goes on by itself, and every committed row becomes one run, in order.
func TestServerCrashesInTheMiddle(t *testing.T) {
	server, err := pgtest.Start(t.Context(), pgtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	om, err := pgoutbox.OpenMigrator(pgoutbox.Config{URL: server.URL()})
	check(err)
	_, err = om.Migrate(t.Context())
	check(err)
	qm, err := postgres.OpenMigrator(postgres.Config{URL: server.URL()})
	check(err)
	_, err = qm.Migrate(t.Context())
	check(err)
	ob, err := pgoutbox.Open(t.Context(), pgoutbox.Config{URL: server.URL()})
	check(err)
	defer ob.Close()
	runs, err := postgres.Open(t.Context(), postgres.Config{URL: server.URL()})
	check(err)
	defer runs.Close()

	app, err := pgx.Connect(t.Context(), server.URL())
	check(err)
	var ids []string
	check(pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) (err error) {
		ids, err = pgoutbox.EnqueueManyTx(t.Context(), tx, numbered(300))
		return err
	}))
	check(app.Close(t.Context()))

	m := jobs()
	q := queue.New(queue.Config{Store: runs, Manifest: func() *manifest.Manifest { return m }})
	events := &enginetest.Events{}
	var settles, failedClaims atomic.Int64
	up := make(chan struct{})
	r, err := outbox.New(outbox.Config{
		Batch: 10, Lease: time.Hour, Queue: q, Logger: events.Logger(),
		Outbox: &between{OutboxRelay: ob, do: func(op string, call func() error) error {
			err := call()
			switch {
			case op == "settle" && settles.Add(1) == 5:
				// The batch is settled, and nobody knows.
				if err := server.Down(context.Background(), "immediate"); err != nil {
					t.Error(err)
				}
				return enginetest.Away()
			case op == "claim" && err != nil && failedClaims.Add(1) == 3:
				close(up)
			}
			return err
		}},
	})
	check(err)
	check(r.Start())
	<-up // it goes on trying
	check(server.Up(t.Context()))
	for {
		left, err := ob.OutboxStats(t.Context())
		if err == nil && left.Waiting == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	check(r.Stop(t.Context()))

	var got []string
	page, err := runs.List(t.Context(), store.ListParams{Limit: 1000})
	check(err)
	for _, run := range page {
		got = append(got, run.ID)
	}
	slices.Reverse(got)
	if !slices.Equal(got, ids) {
		t.Errorf("%d runs for %d rows", len(got), len(ids))
	}
	left, err := ob.OutboxStats(t.Context())
	if err != nil || left.Waiting != 0 || left.Rejected != 0 {
		t.Errorf("%+v %v", left, err)
	}
	if events.Count("outbox.recovered") == 0 {
		t.Errorf("logged %v", events.Messages())
	}
}
