package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// BenchmarkClaimBeside says what a claim of 200 and the settle of what it took
// cost beside b.N other runs: the server's processor time for each run, and the
// pages that it touches for each run. Compare
//
//	go test -run ^$ -bench ClaimBeside -benchtime 1000x ./engine/store/postgres
//	go test -run ^$ -bench ClaimBeside/waiting -benchtime 5000000x -timeout 1h ./engine/store/postgres
//	go test -run ^$ -bench ClaimBeside/finished -benchtime 20000000x -timeout 1h ./engine/store/postgres
func BenchmarkClaimBeside(b *testing.B) {
	for _, tenants := range []int{1, 100} {
		b.Run(fmt.Sprintf("waiting/tenants=%d", tenants), func(b *testing.B) {
			s := openOne(b)
			enqueueN(b, s, b.N, 5000, func(i int) string { return fmt.Sprint(i % tenants) })
			claimBeside(b, s, func(i int) string { return fmt.Sprint(i % tenants) })
		})
	}
	// One tenant has all of them, and 99 have a little.
	b.Run("backlog", func(b *testing.B) {
		s := openOne(b)
		enqueueN(b, s, b.N, 5000, func(int) string { return "0" })
		claimBeside(b, s, func(i int) string { return fmt.Sprint(i % 100) })
	})
	b.Run("finished", func(b *testing.B) {
		s := openOne(b)
		fillFinished(b, s, b.N)
		claimBeside(b, s, noTenant)
	})
}

// openOne opens a store with one connection, whose process a meter watches.
func openOne(b *testing.B) *Store { return open(b, migrated(b, Config{MaxConns: 1, NoListen: true})) }

// fillFinished inserts n runs that have ended.
func fillFinished(b *testing.B, s *Store, n int) {
	const chunk = 1_000_000
	for from := 1; from <= n; from += chunk {
		if _, err := s.pool.Exec(context.Background(), s.cfg.dialect().fill(`
			INSERT INTO {schema}.finished (id, job, queue, tenant, key, state, priority, attempt, max_attempts, claims, orphans,
				run_at, created_at, started_at, claimed_at, finished_at, expires_at, worker, input, output)
			SELECT (left({schema}.floor_id(now() - interval '1 hour' + n / 100 * interval '1 ms')::text, 24) || lpad(to_hex(n), 12, '0'))::uuid, 'bench/noop', 'q', '', '', 'done', 0, 1, 3, 1, 0,
				now(), now(), now(), now(), now(), now() + interval '1 day', 'w', '{"n":1,"text":"an input of usual size"}', '{"ok":true}'
			FROM generate_series(`+fmt.Sprint(from)+`, `+fmt.Sprint(min(n, from+chunk-1))+`) n`), pgxSimple); err != nil {
			b.Fatal(err)
		}
	}
}

// claimBeside measures with runs of its own beside what is there.
func claimBeside(b *testing.B, s *Store, tenant func(int) string) {
	const measured, batch = 20_000, 200
	ctx := context.Background()
	enqueueN(b, s, measured+batch, 5000, tenant)
	exec := func(sql string) {
		if _, err := s.pool.Exec(ctx, s.cfg.dialect().fill(sql), pgxSimple); err != nil {
			b.Fatal(err)
		}
	}
	exec("VACUUM ANALYZE {schema}.waiting")
	exec("VACUUM ANALYZE {schema}.finished")
	exec("CHECKPOINT") // rather than one in the middle
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		b.Fatal(err)
	}
	m := newMeter(b, s)
	claim := func() []job.Run {
		res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: batch}}})
		if err != nil || len(res.Runs) == 0 {
			b.Fatal(len(res.Runs), err)
		}
		return res.Runs
	}
	settle := func(runs []job.Run) {
		ends := make([]store.SettleParams, len(runs))
		for i, r := range runs {
			ends[i] = store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte(`{"ok":true}`), Retention: 24 * time.Hour}
		}
		if _, err := s.Settle(ctx, ends); err != nil {
			b.Fatal(err)
		}
	}
	settle(claim()) // plans, caches
	pages := claimPages(b, s, batch)
	m.reset()
	n := 0
	var claims []time.Duration
	b.ResetTimer()
	for n < measured {
		began := time.Now()
		runs := claim()
		claims = append(claims, time.Since(began))
		m.lap("claim")
		settle(runs)
		m.lap("settle")
		n += len(runs)
	}
	for what, l := range m.laps {
		b.ReportMetric(float64(l.server.Nanoseconds())/1000/float64(n), what+"-server-µs/run")
	}
	slices.Sort(claims)
	b.ReportMetric(float64(claims[len(claims)/2].Microseconds())/1000, "ms/claim")
	b.ReportMetric(pages/batch, "claim-pages/run")
	b.ReportMetric(0, "ns/op")
}

// claimPages is how many pages a claim touches, by the server's own account of
// one that is rolled back.
func claimPages(b *testing.B, s *Store, batch int) float64 {
	ctx := context.Background()
	var text []byte
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		row := tx.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+s.text[qClaim.index], "w", []string{"q"}, []int32{int32(batch)}, []*string{nil}, beginning)
		if err := row.Scan(&text); err != nil {
			return err
		}
		return errors.New("roll it back")
	})
	var plan []struct {
		Plan struct {
			Hit  float64 `json:"Shared Hit Blocks"`
			Read float64 `json:"Shared Read Blocks"`
		}
	}
	if text == nil || json.Unmarshal(text, &plan) != nil || len(plan) != 1 {
		b.Fatalf("no plan: %v, %s", err, text)
	}
	return plan[0].Plan.Hit + plan[0].Plan.Read
}

// BenchmarkWorkHeldOpen claims and settles 50,000 runs after b.N were settled while
// a transaction was held open, which stays open: compare it with "closed". Beside
// what passed it says the processor time of the server for each run.
//
//	go test -run ^$ -bench WorkHeldOpen -benchtime 1000000x -timeout 1h ./engine/store/postgres
func BenchmarkWorkHeldOpen(b *testing.B) {
	for _, held := range []string{"closed", "open"} {
		for _, tenants := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/tenants=%d", held, tenants), func(b *testing.B) {
				ctx := context.Background()
				s := open(b, migrated(b, Config{}))
				if held == "open" {
					c, err := pgx.Connect(ctx, s.cfg.URL)
					if err != nil {
						b.Fatal(err)
					}
					defer c.Close(ctx)
					if _, err := c.Exec(ctx, "BEGIN; SELECT pg_current_xact_id()", pgxSimple); err != nil {
						b.Fatal(err)
					}
				}
				tenant := func(i int) string { return fmt.Sprint(i % tenants) }
				for done := 0; done < b.N; done += 50_000 {
					n := min(50_000, b.N-done)
					enqueueN(b, s, n, 5000, tenant)
					work(b, s, n, 500)
				}
				const measured = 50_000
				enqueueN(b, s, measured, 5000, tenant)
				before := serverTimes(b, s)
				b.ResetTimer()
				claims, d := work(b, s, measured, 500)
				b.StopTimer()
				var spent time.Duration
				for pid, t := range serverTimes(b, s) {
					spent += t - before[pid]
				}
				b.ReportMetric(float64(spent.Nanoseconds())/1000/measured, "server-µs/run")
				b.ReportMetric(measured/b.Elapsed().Seconds(), "runs/s")
				b.ReportMetric(float64(d.Microseconds())/1000/float64(claims), "ms/claim")
				b.ReportMetric(float64(claims), "claims")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkStepBeside says how long the record of one step takes, alone and while
// another connection settles as much as it can in batches of 500.
func BenchmarkStepBeside(b *testing.B) {
	for _, beside := range []string{"nothing", "settles"} {
		b.Run(beside, func(b *testing.B) {
			ctx := context.Background()
			s := open(b, migrated(b, Config{}))
			enqueueN(b, s, 1, 1, noTenant)
			if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
				b.Fatal(err)
			}
			res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 1}}})
			if err != nil || len(res.Runs) != 1 {
				b.Fatal(len(res.Runs), err)
			}
			stop, stopped := make(chan struct{}), make(chan struct{})
			settled := 0
			go func() {
				defer close(stopped)
				for beside == "settles" {
					select {
					case <-stop:
						return
					default:
						enqueueN(b, s, 5000, 5000, noTenant)
						work(b, s, 5000, 500)
						settled += 5000
					}
				}
			}()
			took := make([]time.Duration, 0, b.N)
			began := time.Now()
			for n := range b.N {
				from := time.Now()
				out, err := s.SaveSteps(ctx, []store.StepParams{{
					Ref: refOf(res.Runs[0]), Name: fmt.Sprint(n), Kind: job.KindStep, Status: job.StepCompleted, Output: []byte(`{"ok":true}`), New: true,
				}})
				if err != nil || !out[0].Landed {
					b.Fatal(out, err)
				}
				took = append(took, time.Since(from))
			}
			elapsed := time.Since(began)
			close(stop)
			<-stopped
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
			b.ReportMetric(float64(settled)/elapsed.Seconds(), "settles/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
