package engine

import (
	"context"

	"github.com/jobrunner/runner/engine/store"
)

// TxStore inserts runs in a transaction of its driver's, as *postgres.Store does
// in a pgx.Tx.
type TxStore[Tx any] interface {
	EnqueueTx(ctx context.Context, tx Tx, batch []store.EnqueueParams) ([]store.EnqueueResult, error)
}

// EnqueueTx inserts runs in a transaction of the caller's on the queue's own
// database: they are there if it commits, and never were if it rolls back. Requests
// are checked as by EnqueueMany, and none of them is inserted if one is refused.
// db is the client's store; it is asked for because what a transaction is depends
// on its driver, which this package does not know.
//
// An error of the database leaves the transaction unusable, as any statement's
// does. An application whose tables are in another database stages runs there
// instead: see package outbox.
//
// Errors: as Client.EnqueueMany, but X_JOB_DUPLICATE with OnConflict Fail leaves
// the call's other requests inserted, if the transaction commits.
func EnqueueTx[Tx any](ctx context.Context, c *Client, db TxStore[Tx], tx Tx, requests ...Request) ([]Result, error) {
	return c.queue.EnqueueThrough(ctx, requests, func(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
		return db.EnqueueTx(ctx, tx, batch)
	})
}
