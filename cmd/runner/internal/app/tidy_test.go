package app_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Of modules that are not deployed any more, those stay that a run may still need.
func TestTidyKeepsModulesThatRunsArePinnedTo(t *testing.T) {
	s, dir, log := serve(t)
	defer func() { _ = s.Drain(context.Background()) }()
	s.Untidy() // what it does at the start could take what is planted and not pinned yet
	ctx, modules := t.Context(), filepath.Join(dir, ".runner", "modules")
	deployed := names(t, modules)
	if len(deployed) != 1 {
		t.Fatalf("kept are %q", deployed)
	}
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keep := func(text string) {
		put(t, modules, digest(text)+".wasm", text)
		old := time.Now().Add(-100 * 24 * time.Hour)
		check(os.Chtimes(filepath.Join(modules, digest(text)+".wasm"), old, old))
	}
	// A queue of which this server knows nothing: another process's run.
	check(s.Store().Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}))
	pin := func(text string, settle store.SettleParams) {
		keep(text)
		_, err := s.Store().Enqueue(ctx, []store.EnqueueParams{{ID: uuid.Must(uuid.NewV7()).String(), Job: "j", Queue: "other", Key: text, MaxAttempts: 1, Input: []byte("1")}})
		check(err)
		res, err := s.Store().Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "other", Limit: 1}}})
		check(err)
		if len(res.Runs) != 1 {
			t.Fatalf("claimed %d", len(res.Runs))
		}
		settle.Ref = job.Ref{RunID: res.Runs[0].ID, Worker: "w", Claim: res.Runs[0].Claims}
		settle.Module, settle.Retention = digest(text), time.Hour
		landed, err := s.Store().Settle(ctx, []store.SettleParams{settle})
		check(err)
		if !landed[0].Landed {
			t.Fatal("not settled")
		}
	}
	pin("sleeps", store.SettleParams{Outcome: job.Retried, To: job.Delayed, Delay: 1000 * time.Hour})
	pin("dead", store.SettleParams{Outcome: job.DeadLettered, To: job.Dead, Error: &job.Failure{Code: "X", Message: "m"}})
	pin("done", store.SettleParams{Outcome: job.Completed, To: job.Done})
	keep("nobody's")

	s.Tidy(ctx, time.Now())
	want := append(slices.Clone(deployed), digest("sleeps")+".wasm", digest("dead")+".wasm")
	slices.Sort(want)
	if got := names(t, modules); !slices.Equal(got, want) {
		t.Errorf("left are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !log.has("serve.tidied modules=2") {
		t.Error("it was not said")
	}
	// And what is needed has been used just now.
	for _, name := range want {
		info, err := os.Stat(filepath.Join(modules, name))
		if err != nil || time.Since(info.ModTime()) > time.Hour {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
