package postgres

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// woken subscribes, waits until wakes of other processes are known to arrive,
// and returns what waits for one.
func woken(t *testing.T, s *Store) (next func(queue string)) {
	t.Helper()
	s.listen.wait = time.Hour // for a probe: it comes back, however slow the machine is
	got := make(chan string, 1000)
	t.Cleanup(s.Wakes(func(q string) { got <- q }))
	next = func(queue string) {
		t.Helper()
		for <-got != queue {
		}
	}
	// "" says that listening has begun: what came before was not heard.
	next("")
	if !s.Listening() {
		t.Fatal("a wake came before listening was proved")
	}
	return next
}

// Two stores on one schema are two processes, but for what they share in memory:
// nothing.
func TestWakesReachOtherProcesses(t *testing.T) {
	ctx := context.Background()
	cfg := migrated(t, Config{})
	here, there := open(t, cfg), open(t, cfg)
	next := woken(t, here)

	n := 0
	enqueue := func(p store.EnqueueParams) {
		t.Helper()
		n++
		p.ID, p.Job, p.MaxAttempts = idAt(time.Now(), n), "j", 3
		if _, err := there.Enqueue(ctx, []store.EnqueueParams{p}); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(store.EnqueueParams{Queue: "one"})
	next("one")
	// A burst in one slot is told at its end: the last of it is not lost.
	enqueue(store.EnqueueParams{Queue: "burst"})
	next("burst")
	for range 4 {
		enqueue(store.EnqueueParams{Queue: "burst"})
	}
	next("burst")
	// In the caller's transaction, when that commits.
	tx, err := there.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n++
	if _, err := there.EnqueueTx(ctx, tx, []store.EnqueueParams{{ID: idAt(time.Now(), n), Job: "j", Queue: "tx", MaxAttempts: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	next("tx")
	// By a settle, whose queue only the database knows.
	if err := there.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	enqueue(store.EnqueueParams{Queue: "again \x00"})
	next("again \x00")
	res, err := there.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "again \x00", Limit: 1}}})
	if err != nil || len(res.Runs) != 1 {
		t.Fatal(res, err)
	}
	if _, err := there.Settle(ctx, []store.SettleParams{{Ref: refOf(res.Runs[0]), Outcome: job.Interrupted, To: job.Ready}}); err != nil {
		t.Fatal(err)
	}
	next("again \x00")
}

// What an end leaves free for what waits behind a limit is told of: by a process
// that will not look itself, by a cancel, and by the burial of a lost worker's run.
func TestAFreedPlaceIsToldOf(t *testing.T) {
	ctx := context.Background()
	cfg := migrated(t, Config{})
	here, there := open(t, cfg), open(t, cfg)
	begun := func(queue string) job.Run {
		t.Helper()
		p := store.EnqueueParams{ID: newID(), Job: "j", Queue: queue, MaxAttempts: 1}
		if _, err := there.Enqueue(ctx, []store.EnqueueParams{p}); err != nil {
			t.Fatal(err)
		}
		res, err := there.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: queue, Limit: 1}}})
		if err != nil || len(res.Runs) != 1 {
			t.Fatal(res, err)
		}
		return res.Runs[0]
	}
	if err := there.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	var runs []job.Run
	for _, queue := range []string{"done", "failed", "cancelled", "buried"} {
		runs = append(runs, begun(queue))
	}
	there.notes.close() // what is late of the enqueues is told or not, but not later
	there.notes = newNotifier(there, false)
	next := woken(t, here)
	end := func(p store.SettleParams) {
		t.Helper()
		if res, err := there.Settle(ctx, []store.SettleParams{p}); err != nil || !res[0].Landed {
			t.Fatal(res, err)
		}
	}
	end(store.SettleParams{Ref: refOf(runs[0]), Outcome: job.Completed, To: job.Done, Wake: "done"})
	next("done")
	end(store.SettleParams{Ref: refOf(runs[1]), Outcome: job.Dropped, To: job.Failed, Wake: "failed"})
	next("failed")
	if _, err := there.Cancel(ctx, store.CancelParams{ID: runs[2].ID}); err != nil {
		t.Fatal(err)
	}
	next("cancelled")
	if _, err := there.pool.Exec(ctx, there.cfg.dialect().fill("UPDATE {schema}.workers SET expires_at = now() - interval '1 second'")); err != nil {
		t.Fatal(err)
	}
	if res, err := there.Reclaim(ctx, store.ReclaimParams{MaxOrphans: 1}); err != nil || len(res.Buried) != 1 {
		t.Fatal(res, err)
	}
	next("buried")
}

// A transaction that is rolled back wakes nobody and leaves nothing.
func TestEnqueueTxIsTheCallersTransaction(t *testing.T) {
	ctx := context.Background()
	s := open(t, migrated(t, Config{}))
	held, err := s.Enqueue(ctx, []store.EnqueueParams{{ID: idAt(time.Now(), 1), Job: "j", Queue: "q", Key: "k", MaxAttempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	connected(t, s.cfg.URL, func(c *pgx.Conn) { // a connection of the application's own
		tx, err := c.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		batch := []store.EnqueueParams{
			{ID: idAt(time.Now(), 2), Job: "j", Queue: "q", MaxAttempts: 1, Input: make([]byte, 4000)},
			{ID: idAt(time.Now(), 3), Job: "j", Queue: "q", Key: "k", MaxAttempts: 1},
			{ID: held[0].ID, Job: "j", Queue: "q", MaxAttempts: 1},
		}
		res, err := s.EnqueueTx(ctx, tx, batch)
		if err != nil {
			t.Fatal(err)
		}
		if res[0].Deduped || res[1].ID != held[0].ID || !res[1].Deduped || !res[2].Deduped {
			t.Fatalf("answers %+v", res)
		}
		if _, err := s.EnqueueTx(ctx, tx, []store.EnqueueParams{{ID: "?"}}); err == nil {
			t.Fatal("an id that is none was taken")
		}
		// A refusal before anything was sent leaves the transaction usable.
		if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(ctx, batch[0].ID); err == nil {
			t.Fatal("a rolled back run is there")
		}
		if tx, err = c.Begin(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := s.EnqueueTx(ctx, tx, batch[:1]); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Get(ctx, batch[0].ID); err != nil || len(r.Input) != 4000 {
			t.Fatal(r, err)
		}
	})
}

// The listening connection comes back, and says that something may have been
// missed.
func TestListeningComesBack(t *testing.T) {
	ctx := context.Background()
	var log lines
	s := open(t, migrated(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	next := woken(t, s)
	for range 2 {
		connected(t, s.cfg.URL, func(c *pgx.Conn) {
			_, err := c.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN ' || $1`,
				pgx.Identifier{s.cfg.channel()}.Sanitize())
			if err != nil {
				t.Fatal(err)
			}
		})
		next("")
	}
	if n := log.count("do not arrive"); n != 0 {
		t.Fatalf("said %d times that wakes do not arrive", n)
	}
}
