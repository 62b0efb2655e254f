package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/storetest"
)

// Figures mean something as ratios, measured in one sitting: run several with
// -count and compare. Runs are counted with -benchtime, as in
//
//	go test -run ^$ -bench Work -benchtime 200000x ./engine/store/postgres

func openBench(tb testing.TB) store.Store { return open(tb, migrated(tb, Config{})) }

func BenchmarkSuite(b *testing.B) { storetest.Bench(b, openBench) }

// benchID is time-ordered, as those of a runner are.
var benchID atomic.Uint64

func newID() string {
	var u uuid
	n := benchID.Add(1)
	binary.BigEndian.PutUint64(u[:], uint64(time.Now().UnixMilli())<<16|0x7000|n>>32&0xfff)
	binary.BigEndian.PutUint64(u[8:], 0x8000<<48|n&0xffffffff)
	return u.String()
}

func enqueueN(tb testing.TB, s *Store, n, batch int, tenant func(i int) string) {
	tb.Helper()
	for i := 0; i < n; {
		entries := make([]store.EnqueueParams, 0, batch)
		for ; len(entries) < batch && i < n; i++ {
			entries = append(entries, store.EnqueueParams{
				ID: newID(), Job: "bench/noop", Queue: "q", Tenant: tenant(i), Input: []byte(`{"n":1,"text":"an input of usual size"}`), MaxAttempts: 3, Minted: true,
			})
		}
		if _, err := s.Enqueue(context.Background(), entries); err != nil {
			tb.Fatal(err)
		}
	}
}

func noTenant(int) string { return "" }

// work claims and settles n runs as a worker with that many slots would: one
// claim at a time, and settles that gather while one is under way.
func work(tb testing.TB, s *Store, n, slots int) (claims int, claiming time.Duration) {
	tb.Helper()
	ctx := context.Background()
	worker := "w-" + newID()
	if err := s.Register(ctx, store.RegisterParams{ID: worker, Lease: time.Hour}); err != nil {
		tb.Fatal(err)
	}
	todo := make(chan []job.Run, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for runs := range todo {
			batch := make([]store.SettleParams, len(runs))
			for i, r := range runs {
				batch[i] = store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte(`{"ok":true}`), Retention: 24 * time.Hour}
			}
			res, err := s.Settle(ctx, batch)
			if err != nil {
				tb.Error(err)
				continue
			}
			for _, r := range res {
				if !r.Landed {
					tb.Error("a settle did not land")
				}
			}
		}
	})
	for left := n; left > 0 && !tb.Failed(); claims++ {
		began := time.Now()
		res, err := s.Claim(ctx, store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: "q", Limit: min(slots, left)}}})
		claiming += time.Since(began)
		if err != nil {
			tb.Error(err)
			break
		}
		if left -= len(res.Runs); len(res.Runs) > 0 {
			todo <- res.Runs
		}
	}
	close(todo)
	wg.Wait()
	return claims, claiming
}

func BenchmarkInsert(b *testing.B) {
	s := open(b, migrated(b, Config{}))
	b.ResetTimer()
	enqueueN(b, s, b.N, 5000, noTenant)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

func BenchmarkWork(b *testing.B) {
	for _, tenants := range []int{1, 1000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			s := open(b, migrated(b, Config{}))
			enqueueN(b, s, b.N, 5000, func(i int) string { return fmt.Sprint(i % tenants) })
			b.ResetTimer()
			claims, d := work(b, s, b.N, 500)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
			b.ReportMetric(float64(d.Microseconds())/1000/float64(claims), "ms/claim")
			b.ReportMetric(float64(claims), "claims")
		})
	}
}

// BenchmarkStatsBeside counts for gauges beside b.N runs that wait, as they were
// enqueued and after a vacuum.
func BenchmarkStatsBeside(b *testing.B) {
	for _, tenants := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("waiting/tenants=%d", tenants), func(b *testing.B) {
			s := open(b, migrated(b, Config{}))
			enqueueN(b, s, b.N, 5000, func(i int) string { return fmt.Sprint(i % tenants) })
			count := func(unit string) {
				const times = 5
				began := time.Now()
				for range times {
					if _, err := s.Stats(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(time.Since(began).Microseconds())/1000/times, unit)
			}
			b.ResetTimer()
			count("ms/fresh")
			if _, err := s.pool.Exec(context.Background(), s.cfg.dialect().fill("VACUUM ANALYZE {schema}.waiting"), pgxSimple); err != nil {
				b.Fatal(err)
			}
			count("ms/vacuumed")
		})
	}
}

const pgxSimple = pgx.QueryExecModeSimpleProtocol

// A claim while so many wait behind one busy key: the figures should not depend
// on how many.
func BenchmarkClaimBehind(b *testing.B) {
	for _, waiting := range []int{0, 100_000} {
		b.Run(strconv.Itoa(waiting), func(b *testing.B) {
			s := open(b, migrated(b, Config{}))
			storetest.BenchClaimBehind(b, s, waiting, func() {
				if _, err := s.pool.Exec(b.Context(), s.cfg.dialect().fill("VACUUM {schema}.waiting")); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
