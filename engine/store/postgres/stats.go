package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
)

var (
	qStatsReady    = named("stats_ready")
	qStatsBlocked  = named("stats_blocked")
	qStatsTimed    = named("stats_timed")
	qStatsRunning  = named("stats_running")
	qStatsFinished = named("stats_finished")
	qStatsEvents   = named("stats_events")
	qStatsWorkers  = named("stats_workers")
)

// Stats implements store.Admin. It counts live runs by walking their indexes,
// within bounds, and reads the finished ones from counts.
func (s *Store) Stats(ctx context.Context) (out store.Stats, err error) {
	err = s.on(ctx, func(c *pgx.Conn) (bool, error) { return false, s.stats(ctx, c, &out) })
	if err != nil {
		return store.Stats{}, err
	}
	return out, nil
}

func (s *Store) stats(ctx context.Context, c *pgx.Conn, out *store.Stats) error {
	*out = store.Stats{}
	byName := map[string]*store.QueueStats{}
	queue := func(r *row) *store.QueueStats {
		name := r.text()
		if byName[name] == nil {
			byName[name] = &store.QueueStats{Queue: name}
		}
		return byName[name]
	}
	err := snapshot(ctx, c, func(tx queryer) error {
		return s.runAll(ctx, tx,
			call{st: qStatsWorkers, scan: func(r *row) error {
				out.Workers, out.Now = int(r.int()), r.time()
				return nil
			}},
			call{st: qStatsEvents, args: []any{s.bounds.Events}, scan: func(r *row) error {
				out.Events, out.OldestEvent = r.int(), r.time()
				return nil
			}},
			call{st: qStatsReady, args: []any{s.bounds.Ready, s.bounds.Lanes}, scan: func(r *row) error {
				t := queue(r)
				t.AddReady(s.bounds, r.int())
				t.OldestDue = r.time()
				return nil
			}},
			call{st: qStatsBlocked, args: []any{s.bounds.Ready}, scan: func(r *row) error {
				q := queue(r)
				q.AddReady(s.bounds, r.int())
				if oldest := r.time(); q.OldestDue.IsZero() || oldest.Before(q.OldestDue) {
					q.OldestDue = oldest
				}
				return nil
			}},
			call{st: qStatsTimed, args: []any{s.bounds.Timed}, scan: func(r *row) error {
				t := queue(r)
				n, due := r.int(), r.time()
				if !due.IsZero() && (t.OldestDue.IsZero() || due.Before(t.OldestDue)) {
					t.OldestDue = due
				}
				t.AddTimed(s.bounds, n, r.int(), r.int())
				return nil
			}},
			call{st: qStatsRunning, scan: func(r *row) error {
				t := queue(r)
				t.Running = r.int()
				return nil
			}},
			call{st: qStatsFinished, scan: func(r *row) error {
				t := queue(r)
				t.Done, t.Failed, t.Dead, t.Cancelled = r.int(), r.int(), r.int(), r.int()
				return nil
			}},
		)
	})
	if err != nil {
		return err
	}
	for _, t := range byName {
		out.Queues = append(out.Queues, *t)
	}
	slices.SortFunc(out.Queues, func(a, b store.QueueStats) int { return strings.Compare(a.Queue, b.Queue) })
	return nil
}

// snapshot runs f where all its statements see the same commits.
func snapshot(ctx context.Context, c *pgx.Conn, f func(q queryer) error) error {
	tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after a commit it does nothing
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
