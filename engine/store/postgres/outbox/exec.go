package outbox

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// tries is how often a transaction that the server rolled back is run.
const tries = 6

// query runs one statement as a transaction of its own and gives its rows to
// scan. writes says that it changes something. It may be run again, after it had
// no effect: scan must begin anew with each first row, which reset prepares.
func (d *DB) query(ctx context.Context, writes bool, reset func(), scan func(pgx.Rows) error, text string, args ...any) error {
	return d.again(ctx, writes, func() (sent bool, err error) {
		reset()
		var b pgx.Batch
		b.Queue(d.text["plan"])
		b.Queue(text, args...)
		res := d.pool.SendBatch(ctx, &b)
		err = rowsOf(res, func(pgx.Rows) error { return nil })
		if err == nil {
			err = rowsOf(res, scan)
		}
		if closed := res.Close(); err == nil {
			err = closed
		}
		return writes, err
	})
}

// rowsOf scans the rows of the next result.
func rowsOf(res pgx.BatchResults, scan func(pgx.Rows) error) error {
	rows, err := res.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// inTx runs f in a transaction. f may be run again, after it had no effect.
func (d *DB) inTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	return d.again(ctx, true, func() (sent bool, err error) {
		tx, err := d.pool.Begin(ctx)
		if err != nil {
			return false, err
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) // after a commit it does nothing
		if err := f(tx); err != nil {
			return false, err
		}
		return true, tx.Commit(ctx)
	})
}

// again runs f until it works or fails for a reason that stays. sent says
// whether f's error may have left work done.
func (d *DB) again(ctx context.Context, writes bool, f func() (sent bool, err error)) error {
	for try := 1; ; try++ {
		sent, err := f()
		if err == nil {
			return nil
		}
		if try == tries || !retryable(err) || ctx.Err() != nil {
			return d.at.translate(err, writes && sent)
		}
		t := time.NewTimer(rand.N(time.Millisecond << try)) // to part what collided
		select {
		case <-ctx.Done():
			t.Stop()
			return d.at.translate(err, false)
		case <-t.C:
		}
	}
}
