package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Bench measures a store on its real clock. Every figure is durable work: what
// was answered is on disk.
func Bench(b *testing.B, open func(tb testing.TB) store.Store) {
	for _, bench := range []struct {
		name string
		run  func(b *testing.B, s store.Store)
	}{
		{"EnqueueOne", benchEnqueueOne},
		{"EnqueueBulk1000", benchEnqueueBulk},
		{"EnqueueConcurrent50", benchEnqueueConcurrent},
		{"ClaimSettle50", benchClaimSettle},
		{"EnqueueClaimSettle50", benchLifecycle},
		{"Step50", benchSteps},
	} {
		b.Run(bench.name, func(b *testing.B) { bench.run(b, open(b)) })
	}
}

// BenchClaimBeside measures ClaimSettle50 beside finished runs. The claim path
// is flat when the figures are.
func BenchClaimBeside(b *testing.B, open func(tb testing.TB) store.Store, finished int) {
	s := open(b)
	ids := newBenchIDs()
	benchRegister(b, s, "filler")
	for done := 0; done < finished; {
		n := min(1000, finished-done)
		benchEnqueue(b, s, ids, n, "fill")
		res, err := s.Claim(b.Context(), store.ClaimParams{Worker: "filler", Queues: []store.QueueLimit{{Queue: "fill", Limit: n}}})
		if err != nil || res.WorkerGone || len(res.Runs) != n {
			b.Fatalf("filling: %d runs, %v", len(res.Runs), err)
		}
		batch := make([]store.SettleParams, n)
		for i, r := range res.Runs {
			batch[i] = store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Retention: time.Hour * 24 * 365}
		}
		if _, err := s.Settle(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		done += n
	}
	claimSettle(b, s, ids)
}

type benchIDs struct{ n atomic.Int64 }

func newBenchIDs() *benchIDs { return &benchIDs{} }

// next is a time-ordered id as a runner mints it: the instant, then noise.
func (i *benchIDs) next() string {
	n := i.n.Add(1)
	return fmt.Sprintf("%08x-%04x-7000-8000-%04x%08x", 0x01970000+n>>16, n&0xffff, uint16(n*40503), uint32(n*2654435761))
}

func (i *benchIDs) params(queue string) store.EnqueueParams {
	return store.EnqueueParams{ID: i.next(), Job: "bench/noop", Queue: queue, Input: []byte(`{"n":1,"text":"an input of a usual size, for a job"}`), MaxAttempts: 3, Minted: true}
}

func benchRegister(b *testing.B, s store.Store, worker string) {
	b.Helper()
	if err := s.Register(b.Context(), store.RegisterParams{ID: worker, Lease: time.Hour}); err != nil {
		b.Fatal(err)
	}
}

func benchEnqueue(b *testing.B, s store.Store, ids *benchIDs, n int, queue string) {
	b.Helper()
	batch := make([]store.EnqueueParams, n)
	for i := range batch {
		batch[i] = ids.params(queue)
	}
	if _, err := s.Enqueue(b.Context(), batch); err != nil {
		b.Fatal(err)
	}
}

// perSecond reports what the loop did beside the time an operation took.
func perSecond(b *testing.B, n int, unit string) {
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), unit+"/s")
}

// workersDo spreads n pieces of work over as many goroutines.
func workersDo(goroutines, n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				f(int(i))
			}
		})
	}
	wg.Wait()
}

func benchEnqueueOne(b *testing.B, s store.Store) {
	ids := newBenchIDs()
	for b.Loop() {
		benchEnqueue(b, s, ids, 1, "q")
	}
	perSecond(b, b.N, "runs")
}

func benchEnqueueBulk(b *testing.B, s store.Store) {
	ids := newBenchIDs()
	for b.Loop() {
		benchEnqueue(b, s, ids, 1000, "q")
	}
	perSecond(b, b.N*1000, "runs")
}

func benchEnqueueConcurrent(b *testing.B, s store.Store) {
	ids := newBenchIDs()
	b.ResetTimer()
	workersDo(50, b.N, func(int) {
		if _, err := s.Enqueue(b.Context(), []store.EnqueueParams{ids.params("q")}); err != nil {
			b.Error(err)
		}
	})
	perSecond(b, b.N, "runs")
}

func benchClaimSettle(b *testing.B, s store.Store) { claimSettle(b, s, newBenchIDs()) }

// claimSettle has one claimer feed fifty slots, each of which settles alone, as
// a worker of no-op jobs does.
func claimSettle(b *testing.B, s store.Store, ids *benchIDs) {
	benchRegister(b, s, "w")
	for n := 0; n < b.N; n += 1000 {
		benchEnqueue(b, s, ids, min(1000, b.N-n), "q")
	}
	b.ResetTimer()
	drain(b, s, b.N, func() bool { return true })
	perSecond(b, b.N, "runs")
}

// benchLifecycle adds the enqueuing, by fifty at once, to the same.
func benchLifecycle(b *testing.B, s store.Store) {
	ids := newBenchIDs()
	benchRegister(b, s, "w")
	b.ResetTimer()
	var wg sync.WaitGroup
	wg.Go(func() {
		workersDo(50, b.N, func(int) {
			if _, err := s.Enqueue(b.Context(), []store.EnqueueParams{ids.params("q")}); err != nil {
				b.Error(err)
			}
		})
	})
	drain(b, s, b.N, func() bool { return !b.Failed() })
	wg.Wait()
	perSecond(b, b.N, "runs")
}

// drain claims and settles total runs with fifty slots.
func drain(b *testing.B, s store.Store, total int, more func() bool) {
	const slots = 50
	free := make(chan struct{}, slots)
	for range slots {
		free <- struct{}{}
	}
	work := make(chan job.Run, slots)
	var wg sync.WaitGroup
	for range slots {
		wg.Go(func() {
			for r := range work {
				res, err := s.Settle(b.Context(), []store.SettleParams{{
					Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte(`{"ok":true}`), Retention: 24 * time.Hour,
				}})
				if err != nil || !res[0].Landed {
					b.Errorf("settle: %v, %v", res, err)
				}
				free <- struct{}{}
			}
		})
	}
	for claimed := 0; claimed < total && more(); {
		<-free
		n := 1
		for n < slots && n < total-claimed {
			select {
			case <-free:
				n++
				continue
			default:
			}
			break
		}
		res, err := s.Claim(b.Context(), store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: n}}})
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range res.Runs {
			work <- r
		}
		claimed += len(res.Runs)
		for range n - len(res.Runs) {
			free <- struct{}{}
		}
	}
	close(work)
	wg.Wait()
}

func benchSteps(b *testing.B, s store.Store) {
	const runs = 50
	ids := newBenchIDs()
	benchRegister(b, s, "w")
	benchEnqueue(b, s, ids, runs, "q")
	res, err := s.Claim(b.Context(), store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: runs}}})
	if err != nil || len(res.Runs) != runs {
		b.Fatal(len(res.Runs), err)
	}
	b.ResetTimer()
	workersDo(runs, b.N, func(i int) {
		r := res.Runs[i%runs]
		out, err := s.SaveSteps(b.Context(), []store.StepParams{{
			Ref: refOf(r), Name: fmt.Sprintf("step %d", i), Kind: job.KindStep, Status: job.StepCompleted, Output: []byte(`{"charged":true,"id":"ch_123"}`), New: true,
		}})
		if err != nil || !out[0].Landed {
			b.Errorf("step: %v, %v", out, err)
		}
	})
	perSecond(b, b.N, "steps")
}
