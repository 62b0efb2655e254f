package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

// purgeChunk bounds the runs deleted in one transaction: a few milliseconds of
// locks.
const purgeChunk = 1000

// foldTally is how many rows the counts of finished runs may grow to before a
// purge adds them up.
const foldTally = 1000

var (
	qPurge       = named("purge")
	qFoldTally   = named("fold_tally")
	qTallySize   = named("tally_size")
	qExtend      = named("extend")
	qDropExpired = named("drop_expired")
)

// Purge implements store.Admin. It commits chunk by chunk: with an error it
// answers how many were deleted before it.
//
// Now and then it first looks for weeks whose runs have all expired, and drops
// them whole: that costs the same for ten runs as for ten million, leaves nothing
// for a vacuum to do, and is not bounded by limit.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if limit < 0 {
		return 0, store.Invalid("purge of %d runs", limit)
	}
	total := 0
	if limit > 0 && s.weeks.due() {
		n, err := s.tendWeeks(ctx)
		total += n
		if err != nil {
			return total, err
		}
	}
	for left := limit; left > 0; {
		chunk := min(left, purgeChunk)
		n, err := s.count(ctx, call{st: qPurge, args: []any{chunk}})
		if err != nil {
			return total, err
		}
		total += n
		left -= n
		if n < chunk {
			break
		}
	}
	if err := s.write(ctx, func(q queryer) error { return s.run(ctx, q, call{st: qForgetRates}) }); err != nil {
		return total, err
	}
	return total, s.fold(ctx)
}

// weeksEvery is how often a process looks after the partitions of weeks.
const weeksEvery = time.Hour

// weekly is when that is due again.
type weekly struct {
	mu   sync.Mutex
	next time.Time
}

func (w *weekly) due() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().Before(w.next) {
		return false
	}
	w.next = time.Now().Add(weeksEvery)
	return true
}

// tendWeeks makes the partitions of the weeks to come and drops those that have
// expired, and old entries of the audit; it answers how many runs were in them. A table that is in use for the
// moment is left for another time.
func (s *Store) tendWeeks(ctx context.Context) (int, error) {
	if _, err := s.count(store.Brisk(ctx), call{st: qExtend}); err != nil && sqlState(err) != lockNotAvailable {
		return 0, err
	}
	if err := s.purgeAudit(ctx); err != nil {
		return 0, err
	}
	return s.count(store.Brisk(ctx), call{st: qDropExpired})
}

// lockNotAvailable is the SQLSTATE of a lock that was not waited for.
const lockNotAvailable = "55P03"

// fold adds up the counts of finished runs.
func (s *Store) fold(ctx context.Context) error {
	n, err := s.count(ctx, call{st: qTallySize})
	if err != nil || n < foldTally {
		return err
	}
	return s.write(ctx, func(q queryer) error { return s.run(ctx, q, call{st: qFoldTally}) })
}

// count runs a statement that answers a number.
func (s *Store) count(ctx context.Context, c call) (n int, err error) {
	c.scan = func(r *row) error {
		n = int(r.int())
		return nil
	}
	err = s.write(ctx, func(q queryer) error { return s.run(ctx, q, c) })
	return n, err
}
