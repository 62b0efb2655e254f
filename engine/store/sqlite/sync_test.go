package sqlite

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// openSynced opens a store with a worker w and runs, everything synced.
func openSynced(t *testing.T, runs int) (*Store, *faults) {
	t.Helper()
	f, vfs := newFaults()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "runs.db"), vfs: vfs})
	for n := range runs {
		enqueue(t, s, n)
	}
	if err := s.Register(t.Context(), store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return s, f
}

func claim(t *testing.T, s *Store, limit int) []job.Run {
	t.Helper()
	res, err := s.Claim(t.Context(), store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: limit}}})
	if err != nil {
		t.Fatal(err)
	}
	return res.Runs
}

// until waits for what happens without being asked.
func until(condition func() bool) {
	for !condition() {
		runtime.Gosched()
	}
}

func TestAClaimIsAnsweredFirstAndSyncedSoon(t *testing.T) {
	s, f := openSynced(t, 3)
	before := f.syncs.Load()
	gate := make(chan struct{})
	f.gate.Store(&gate)
	if n := len(claim(t, s, 1)); n != 1 { // while no sync can end
		t.Fatalf("claimed %d", n)
	}
	close(gate)
	// Nobody writes any more.
	until(func() bool { return f.syncs.Load() > before })
}

func TestASettleSyncsTheClaimBeforeIt(t *testing.T) {
	s, f := openSynced(t, 1)
	r := claim(t, s, 1)[0]
	before := f.syncs.Load()
	_, err := s.Settle(t.Context(), []store.SettleParams{{Ref: job.Ref{RunID: r.ID, Worker: "w", Claim: 1}, Outcome: job.Completed, To: job.Done}})
	if err != nil {
		t.Fatal(err)
	}
	if f.syncs.Load() == before {
		t.Fatal("a settle was answered without a sync")
	}
	dirty := true
	_ = s.w.do(t.Context(), func(*tx) error { dirty = s.w.log.dirty; return nil })
	if dirty {
		t.Fatal("the log is not synced after a settle")
	}
}

// An op that writes nothing has nothing to sync, and must not pass for a sync of
// what came before it.
func TestAnOpThatWritesNothingSyncsNothing(t *testing.T) {
	s, f := openSynced(t, 3)
	before := f.syncs.Load()
	claim(t, s, 1)
	if _, err := s.Settle(t.Context(), []store.SettleParams{{Ref: job.Ref{RunID: id(99), Worker: "w", Claim: 1}, Outcome: job.Completed, To: job.Done}}); err != nil {
		t.Fatal(err)
	}
	until(func() bool { return f.syncs.Load() > before })
	before = f.syncs.Load()
	claim(t, s, 0) // claims nothing
	var unsynced bool
	_ = s.w.do(t.Context(), func(*tx) error { unsynced = !s.w.since.IsZero(); return nil })
	if unsynced || f.syncs.Load() != before {
		t.Fatal("a claim of nothing left something to sync")
	}
}

// A sync that fails after the answer makes the log suspect: nothing is written
// before it has been moved into the database.
func TestAFailedLateSyncStopsWritesUntilItIsMended(t *testing.T) {
	s, f := openSynced(t, 3)
	fail(&f.sync, errNoSync)
	before := f.syncs.Load()
	claim(t, s, 1)
	until(func() bool { return f.syncs.Load() > before })
	for n := range 2 {
		_, err := s.Enqueue(t.Context(), []store.EnqueueParams{params(10 + n)})
		wantCode(t, err, job.CodeDatabaseUnavailable)
	}
	fail(&f.sync, nil)
	enqueue(t, s, 20)
	if exists(t, s, 10) || exists(t, s, 11) || !exists(t, s, 20) {
		t.Fatal("a refused write was done, or an answered one was not")
	}
	if n := stats(t, s).Running; n != 1 {
		t.Fatalf("%d running, want the one whose sync failed late", n)
	}
}
