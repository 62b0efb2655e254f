package postgres

import (
	"context"
)

// purgeChunk bounds the runs deleted in one transaction: a few milliseconds of
// locks.
const purgeChunk = 1000

// foldTally is how many rows the counts of finished runs may grow to before a
// purge adds them up.
const foldTally = 1000

var (
	qPurge     = named("purge")
	qFoldTally = named("fold_tally")
	qTallySize = named("tally_size")
)

// Purge implements store.Admin. It commits chunk by chunk: with an error it
// answers how many were deleted before it.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if limit < 0 {
		return 0, errInvalid("purge of %d runs", limit)
	}
	total := 0
	for total < limit {
		chunk := min(limit-total, purgeChunk)
		n, err := s.count(ctx, call{st: qPurge, args: []any{chunk}})
		if err != nil {
			return total, err
		}
		total += n
		if n < chunk {
			break
		}
	}
	return total, s.fold(ctx)
}

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
