package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// An application that has enqueued a key, or published to a topic, and has not
// committed yet: who needs the same waits for it, unless he is brisk.
func TestAWriteThatIsBriskDoesNotWaitForAnOpenTransaction(t *testing.T) {
	ctx := t.Context()
	cfg := migrated(t, Config{MaxConns: 4})
	s := open(t, cfg)
	params := []store.EnqueueParams{{ID: idAt(time.Now(), 1), Job: "j", Queue: "q", Key: "k", MaxAttempts: 1}}
	connected(t, cfg.URL, func(c *pgx.Conn) {
		tx, err := c.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := tx.Exec(ctx, cfg.dialect().fill("INSERT INTO {schema}.live_keys (job, tenant, key, run_id) VALUES ('j', '', 'k', gen_random_uuid())")); err != nil {
			t.Fatal(err)
		}
		_, err = s.Enqueue(store.Brisk(ctx), params)
		if !errors.Is(err, store.ErrHeld) || errors.Is(err, store.ErrUnknown) || abi.CodeOf(err) != job.CodeDatabaseBusy {
			t.Errorf("a brisk one is told %v", err)
		}
		waited := make(chan error)
		go func() {
			_, err := s.Enqueue(ctx, params)
			waited <- err
		}()
		// It waits again and again: two of its tries end while the key is held.
		for range 2 {
			if _, err := s.Enqueue(store.Brisk(ctx), params); !errors.Is(err, store.ErrHeld) {
				t.Errorf("the second brisk one is told %v", err)
			}
		}
		select {
		case err := <-waited:
			t.Errorf("one who waits was answered, %v, while the key was held", err)
		default:
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err != nil {
			t.Errorf("one who waited is told %v", err)
		}
	})
}
