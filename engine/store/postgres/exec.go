package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/puddle/v2"

	"github.com/jobrunner/runner/engine/store"
)

// tries is how often a transaction that the server rolled back is run.
const tries = 8

// queryer is a connection or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// read runs f on a connection. What f does changes nothing.
func (s *Store) read(ctx context.Context, f func(q queryer) error) error {
	return s.on(ctx, func(c *pgx.Conn) (bool, error) { return false, f(c) })
}

// write runs f on a connection; whatever f sends at once is one transaction. f
// may be run again, after it had no effect.
func (s *Store) write(ctx context.Context, f func(q queryer) error) error {
	return s.on(ctx, func(c *pgx.Conn) (bool, error) { return true, f(c) })
}

// inTx runs f in a transaction. f may be run again, after it had no effect.
func (s *Store) inTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	return s.on(ctx, func(c *pgx.Conn) (sent bool, err error) {
		tx, err := c.Begin(ctx)
		if err != nil {
			return false, err
		}
		// The context may be done already; the rollback is still due.
		defer func() {
			if err != nil {
				_ = tx.Rollback(context.WithoutCancel(ctx))
			}
		}()
		if err := f(tx); err != nil {
			return false, err
		}
		return true, tx.Commit(ctx)
	})
}

// on gives f a connection, again if the server rolled its work back. sent says
// whether f's error may have left work done.
//
// A statement waits a second for a lock. It waits for it again, as long as ctx is
// there, but for a write that is brisk: that answers store.ErrHeld.
func (s *Store) on(ctx context.Context, f func(c *pgx.Conn) (sent bool, err error)) error {
	for try := 1; ; try++ {
		c, err := s.pool.Acquire(ctx)
		if err != nil {
			// A connection that was being made when the store was closed is cancelled.
			if errors.Is(err, puddle.ErrClosedPool) || errors.Is(err, context.Canceled) && ctx.Err() == nil {
				return errClosed
			}
			return s.translate(err, false)
		}
		sent, err := f(c.Conn())
		c.Release()
		if err == nil {
			return nil
		}
		if sqlState(err) == lockNotAvailable && !store.IsBrisk(ctx) && ctx.Err() == nil {
			try--
			continue
		}
		if try == tries || !retryable(err) || ctx.Err() != nil {
			return s.translate(err, sent)
		}
		if pause(ctx, try) != nil {
			return s.translate(err, sent) // what kept it from landing, rather than that its time was up
		}
	}
}

// pause waits a random while that grows with the try, to part what collided.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(time.Duration(rand.Int64N(int64(time.Millisecond) << try)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// call is one statement with its arguments, and what reads its rows.
type call struct {
	st   *statement
	args []any
	scan func(r *row) error // nil drops them
}

// run runs one statement.
func (s *Store) run(ctx context.Context, q queryer, c call) error {
	rows, err := q.Query(ctx, s.text[c.st.index], c.args...)
	if err != nil {
		return err
	}
	return scanAll(rows, c.scan)
}

// runAll sends several statements at once. Outside a transaction they are one.
func (s *Store) runAll(ctx context.Context, q queryer, calls ...call) error {
	if len(calls) == 1 {
		return s.run(ctx, q, calls[0])
	}
	var b pgx.Batch
	for _, c := range calls {
		b.Queue(s.text[c.st.index], c.args...)
	}
	res := q.SendBatch(ctx, &b)
	for _, c := range calls {
		rows, err := res.Query()
		if err == nil {
			err = scanAll(rows, c.scan)
		}
		if err != nil {
			_ = res.Close() // repeats the error
			return err
		}
	}
	return res.Close()
}

func scanAll(rows pgx.Rows, scan func(r *row) error) error {
	var r row
	for rows.Next() {
		if scan == nil {
			continue
		}
		r.begin(rows.RawValues())
		err := scan(&r)
		if err == nil {
			err = r.err
		}
		if err != nil {
			rows.Close()
			return err
		}
	}
	return rows.Err()
}
