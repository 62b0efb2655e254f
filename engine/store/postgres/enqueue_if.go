package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
)

// EnqueueIf implements store.Enqueuer.
func (s *Store) EnqueueIf(ctx context.Context, batch []store.EnqueueParams, accept func([]store.EnqueueResult) error) ([]store.EnqueueResult, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	b, err := newEntries(batch)
	if err != nil {
		return nil, err
	}
	try := 0
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		try++
		b.clear(b.all())
		if err := s.enqueueIn(ctx, tx, b, b.all(), enqueueModeOf(try)); err != nil {
			return err
		}
		if err := accept(b.results); err != nil {
			return err
		}
		return s.notes.in(ctx, tx, b.queues(b.all()))
	})
	if err != nil {
		return nil, err
	}
	s.entered(b)
	return b.results, nil
}
