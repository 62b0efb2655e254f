package sqlite

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

var (
	qStatsReady   = named("stats_ready")
	qStatsWaiting = named("stats_waiting")
	qStatsRunning = named("stats_running")
	qStatsEnded   = named("stats_ended")
	qStatsWorkers = named("stats_workers")
)

// Stats implements store.Admin. It counts live runs by walking their indexes and
// reads the finished ones from counts.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	var out store.Stats
	err := s.read(ctx, func(c *conn) error {
		now := s.cfg.Clock().UnixMilli()
		out = store.Stats{Now: fromMS(now)}
		byName := map[string]*store.QueueStats{}
		queue := func(q *call) *store.QueueStats {
			name := q.colText(0)
			if byName[name] == nil {
				byName[name] = &store.QueueStats{Queue: name}
			}
			return byName[name]
		}
		err := c.snapshot(func() error { return c.stats(now, queue, &out.Workers) })
		if err != nil {
			return err
		}
		for _, q := range byName {
			out.Queues = append(out.Queues, *q)
		}
		slices.SortFunc(out.Queues, func(a, b store.QueueStats) int { return strings.Compare(a.Queue, b.Queue) })
		return nil
	})
	if err != nil {
		return store.Stats{}, err
	}
	return out, nil
}

func (c *conn) stats(now int64, queue func(*call) *store.QueueStats, workers *int) error {
	q := c.use(qStatsReady)
	for q.step() {
		s := queue(&q)
		s.Ready, s.OldestDue = q.colInt(1), q.colTime(2)
	}
	if err := q.end(); err != nil {
		return err
	}
	q = c.use(qStatsWaiting)
	q.int(now)
	for q.step() {
		s := queue(&q)
		s.Ready += q.colInt(1)
		if due := q.colTime(2); !due.IsZero() && (s.OldestDue.IsZero() || due.Before(s.OldestDue)) {
			s.OldestDue = due
		}
		s.Delayed, s.Suspended = q.colInt(3), q.colInt(4)
	}
	if err := q.end(); err != nil {
		return err
	}
	q = c.use(qStatsRunning)
	for q.step() {
		s := queue(&q)
		s.Running = q.colInt(1)
	}
	if err := q.end(); err != nil {
		return err
	}
	q = c.use(qStatsEnded)
	for q.step() {
		s := queue(&q)
		s.Done, s.Failed, s.Dead, s.Cancelled = q.colInt(1), q.colInt(2), q.colInt(3), q.colInt(4)
	}
	if err := q.end(); err != nil {
		return err
	}
	q = c.use(qStatsWorkers)
	q.int(now)
	if q.step() {
		*workers = int(q.colInt(0))
	}
	return q.end()
}

// Now implements store.Clock. It reads the file: whoever asks wants to know besides
// whether the database answers.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.read(ctx, func(c *conn) error {
		_, err := c.pragma("schema_version")
		now = fromMS(s.cfg.Clock().UnixMilli())
		return err
	})
	return now, err
}
