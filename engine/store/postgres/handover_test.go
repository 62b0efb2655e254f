package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// That a store may leave everything to claims is not enough here.
func TestAnIdleQueueHandsOver(t *testing.T) {
	s := openWith(t, Config{})
	ctx := context.Background()
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	run := func(queue string, input []byte) store.EnqueueParams {
		return store.EnqueueParams{ID: newID(), Job: "j", Queue: queue, MaxAttempts: 3, Worker: "w", Minted: true, Input: input}
	}
	enqueue := func(batch ...store.EnqueueParams) []store.EnqueueResult {
		t.Helper()
		res, err := s.Enqueue(ctx, batch)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if _, err := s.Enqueue(ctx, []store.EnqueueParams{{ID: newID(), Job: "j", Queue: "busy", MaxAttempts: 3}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(ctx, []store.EnqueueParams{{ID: newID(), Job: "j", Queue: "idle", MaxAttempts: 3, Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	res := enqueue(run("idle", nil), run("busy", nil), run("idle", []byte("1")))
	for i, want := range []job.State{job.Running, job.Ready, job.Running} {
		if res[i].State != want || (res[i].Run != nil) != (want == job.Running) {
			t.Errorf("entry %d: %+v, want it %s", i, res[i], want)
		}
	}
	if r := enqueue(run("idle", make([]byte, inlineInput+1)))[0]; r.Run != nil {
		t.Error("a run whose input is kept apart was handed over")
	}
}
