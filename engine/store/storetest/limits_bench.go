package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

// BenchClaimBehind measures a claim of ten runs of other keys, and their settles,
// while so many wait behind one that is busy. The figures should not depend on
// how many. tidy does what the database will have done some time after they were
// set aside.
func BenchClaimBehind(b *testing.B, s store.Store, waiting int, tidy func()) {
	ids := newBenchIDs()
	benchRegister(b, s, "w")
	limits := &limit.Queue{Jobs: map[string]limit.Job{"bench/noop": {Concurrency: 1, Keyed: true}}}
	enqueue := func(n int, key func(i int) string) {
		batch := make([]store.EnqueueParams, n)
		for i := range batch {
			batch[i] = ids.params("q")
			batch[i].Gate = limit.KeyGate("bench/noop", key(i))
		}
		if _, err := s.Enqueue(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	claim := func(n int) store.ClaimResult {
		res, err := s.Claim(b.Context(), store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: n, Limits: limits}}})
		if err != nil || res.WorkerGone {
			b.Fatal(err)
		}
		return res
	}
	busy := func(int) string { return "busy" }
	enqueue(1, busy)
	if n := len(claim(10).Runs); n != 1 {
		b.Fatalf("claimed %d", n)
	}
	for n := 0; n < waiting; n += 1000 {
		enqueue(min(1000, waiting-n), busy)
	}
	began := time.Now()
	for res := claim(10); !res.NextDue.IsZero() && !res.NextDue.After(res.Now); res = claim(10) {
	}
	if waiting > 0 {
		b.ReportMetric(float64(time.Since(began).Microseconds())/float64(waiting), "µs/set-aside")
	}
	tidy()
	b.ResetTimer()
	var claiming time.Duration
	for n := 0; b.Loop(); n++ {
		enqueue(10, func(i int) string { return fmt.Sprint(n, " ", i) })
		at := time.Now()
		res := claim(10)
		claiming += time.Since(at)
		if len(res.Runs) != 10 {
			b.Fatalf("claimed %d", len(res.Runs))
		}
		batch := make([]store.SettleParams, len(res.Runs))
		for i, r := range res.Runs {
			batch[i] = store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Retention: time.Hour}
		}
		if _, err := s.Settle(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(claiming.Microseconds())/float64(b.N), "µs/claim")
}
