package sqlite

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

var (
	qQueuesReady   = named("queues_ready")
	qQueuesWaiting = named("queues_waiting")
	qStatsReady    = named("stats_ready")
	qStatsLanes    = named("stats_lanes")
	qStatsBlocked  = named("stats_blocked")
	qStatsWaiting  = named("stats_waiting")
	qStatsRunning  = named("stats_running")
	qStatsEnded    = named("stats_ended")
	qStatsEvents   = named("stats_events")
	qStatsWorkers  = named("stats_workers")
)

// Stats implements store.Admin. It counts live runs by walking their indexes,
// within bounds, and reads the finished ones from counts.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	var out store.Stats
	err := s.read(ctx, func(c *conn) error {
		now := s.cfg.Clock().UnixMilli()
		out = store.Stats{Now: fromMS(now)}
		byName := map[string]*store.QueueStats{}
		queue := func(name string) *store.QueueStats {
			if byName[name] == nil {
				byName[name] = &store.QueueStats{Queue: name}
			}
			return byName[name]
		}
		err := c.snapshot(func() error { return c.stats(now, s.bounds, queue, &out) })
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

func (c *conn) stats(now int64, bounds store.StatsBounds, queue func(name string) *store.QueueStats, out *store.Stats) error {
	if err := c.statsReady(bounds, queue); err != nil {
		return err
	}
	if err := c.statsBlocked(bounds, queue); err != nil {
		return err
	}
	if err := c.statsWaiting(now, bounds, queue); err != nil {
		return err
	}
	q := c.use(qStatsRunning)
	for q.step() {
		s := queue(q.colText(0))
		s.Running = q.colInt(1)
	}
	if err := q.end(); err != nil {
		return err
	}
	q = c.use(qStatsEnded)
	for q.step() {
		s := queue(q.colText(0))
		s.Done, s.Failed, s.Dead, s.Cancelled = q.colInt(1), q.colInt(2), q.colInt(3), q.colInt(4)
	}
	if err := q.end(); err != nil {
		return err
	}
	q = c.use(qStatsEvents)
	q.int(bounds.Events)
	if q.step() {
		out.Events, out.OldestEvent = q.colInt(0), q.colTime(1)
	}
	if err := q.end(); err != nil {
		return err
	}
	q = c.use(qStatsWorkers)
	q.int(now)
	if q.step() {
		out.Workers = int(q.colInt(0))
	}
	return q.end()
}

func (c *conn) statsReady(bounds store.StatsBounds, queue func(name string) *store.QueueStats) error {
	names, err := c.names(qQueuesReady)
	if err != nil {
		return err
	}
	for _, name := range names {
		s := queue(name)
		q := c.use(qStatsReady)
		q.text(name)
		q.int(bounds.Ready)
		if q.step() {
			s.AddReady(bounds, q.colInt(0))
			s.OldestDue = q.colTime(1)
		}
		if err := q.end(); err != nil {
			return err
		}
		if s.Ready < bounds.Ready {
			continue
		}
		q = c.use(qStatsLanes)
		q.text(name)
		q.int(bounds.Lanes)
		if q.step() {
			s.OldestDue = earlier(s.OldestDue, q.colTime(0))
		}
		if err := q.end(); err != nil {
			return err
		}
	}
	return nil
}

// statsBlocked counts what waits behind gates, of all queues together no more than
// the bound of one.
func (c *conn) statsBlocked(bounds store.StatsBounds, queue func(name string) *store.QueueStats) error {
	q := c.use(qStatsBlocked)
	q.int(bounds.Ready)
	for q.step() {
		s := queue(q.colText(0))
		s.AddReady(bounds, q.colInt(1))
		s.OldestDue = earlier(s.OldestDue, q.colTime(2))
	}
	return q.end()
}

func (c *conn) statsWaiting(now int64, bounds store.StatsBounds, queue func(name string) *store.QueueStats) error {
	names, err := c.names(qQueuesWaiting)
	if err != nil {
		return err
	}
	for _, name := range names {
		s := queue(name)
		q := c.use(qStatsWaiting)
		q.int(now)
		q.text(name)
		q.int(bounds.Timed)
		if q.step() {
			s.AddTimed(bounds, q.colInt(0), q.colInt(2), q.colInt(3))
			s.OldestDue = earlier(s.OldestDue, q.colTime(1))
		}
		if err := q.end(); err != nil {
			return err
		}
	}
	return nil
}

// names are the texts that a statement without parameters answers.
func (c *conn) names(st *statement) (out []string, err error) {
	q := c.use(st)
	for q.step() {
		out = append(out, q.colText(0))
	}
	return out, q.end()
}

// earlier is the earlier of two instants that may be zero, which is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
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
