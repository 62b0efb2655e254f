package postgres

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// BenchmarkCPU counts processor time, in the server's process and in this one,
// per run: on a machine that does other things as well it says more than time
// that passes. -benchtime 20000x is enough.
func BenchmarkCPU(b *testing.B) {
	for _, batch := range []int{10, 25, 50, 250} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s := open(b, migrated(b, Config{MaxConns: 1, NoListen: true}))
			m := newMeter(b, s)
			ctx := context.Background()
			enqueueN(b, s, 2000, 1000, noTenant) // plans, caches
			if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
				b.Fatal(err)
			}
			cycle := func(n int) {
				for done := 0; done < n; done += batch {
					res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: batch}}})
					if err != nil || len(res.Runs) == 0 {
						b.Fatal(len(res.Runs), err)
					}
					m.lap("claim")
					for _, name := range []string{"step-1", "step-2"} {
						steps := make([]store.StepParams, len(res.Runs))
						for i, r := range res.Runs {
							steps[i] = store.StepParams{Ref: refOf(r), Name: name, Kind: job.KindStep, Status: job.StepCompleted, Output: []byte(`{"ok":true}`), New: true}
						}
						if _, err := s.SaveSteps(ctx, steps); err != nil {
							b.Fatal(err)
						}
					}
					m.lap("2steps")
					ends := make([]store.SettleParams, len(res.Runs))
					for i, r := range res.Runs {
						ends[i] = store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte(`{"ok":true}`), Retention: 24 * time.Hour}
					}
					if _, err := s.Settle(ctx, ends); err != nil {
						b.Fatal(err)
					}
					m.lap("settle")
				}
			}
			cycle(2000)
			m.reset()
			for n := 0; n < b.N; n += 1000 {
				enqueueN(b, s, 1000, 1000, noTenant)
				m.lap("insert")
				cycle(1000)
			}
			for what, l := range m.laps {
				b.ReportMetric(float64(l.server.Nanoseconds())/1000/float64(b.N), what+"-server-µs")
				b.ReportMetric(float64(l.client.Nanoseconds())/1000/float64(b.N), what+"-client-µs")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// meter splits processor time into what it was spent for.
type meter struct {
	tb   testing.TB
	pid  string // of the server's process
	last lap
	laps map[string]lap
}

type lap struct{ server, client time.Duration }

func newMeter(tb testing.TB, s *Store) *meter {
	m := &meter{tb: tb}
	var pid int
	if err := s.pool.QueryRow(context.Background(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		tb.Fatal(err)
	}
	m.pid = strconv.Itoa(pid)
	m.reset()
	return m
}

func (m *meter) now() (l lap) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		m.tb.Fatal(err)
	}
	return lap{processTime(m.tb, m.pid), time.Duration(u.Utime.Nano() + u.Stime.Nano())}
}

func (m *meter) reset() { m.laps, m.last = map[string]lap{}, m.now() }

func (m *meter) lap(what string) {
	now := m.now()
	l := m.laps[what]
	l.server += now.server - m.last.server
	l.client += now.client - m.last.client
	m.laps[what], m.last = l, now
}

// processTime is how long a process of the server has been on a processor.
func processTime(tb testing.TB, pid string) time.Duration {
	text, err := os.ReadFile("/proc/" + pid + "/schedstat")
	if err != nil {
		tb.Skip("no processor time of the server here: ", err)
	}
	n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return time.Duration(n)
}

// serverTimes are those of every process that has a connection to the database.
func serverTimes(tb testing.TB, s *Store) map[string]time.Duration {
	rows, err := s.pool.Query(context.Background(), "SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'")
	if err != nil {
		tb.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]time.Duration{}
	for _, pid := range pids {
		out[pid] = processTime(tb, pid)
	}
	return out
}
