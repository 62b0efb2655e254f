package engine

import (
	"context"

	"github.com/jobrunner/runner/engine/queue"
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

// TxPublisher publishes with a transaction of its driver's, as *postgres.Store does
// with a pgx.Tx.
type TxPublisher[Tx any] interface {
	PublishTx(ctx context.Context, tx Tx, batch []store.EventParams) error
}

// PublishTx publishes events with a transaction of the caller's on the queue's own
// database, and answers their ids: they have their places and have woken who waits
// for them when it commits, in the order of the calls, and never were if it rolls
// back. Nothing is locked before. All are checked before the transaction is
// touched; an error of the database leaves it unusable.
//
// The transaction must be READ COMMITTED, and publishes at most 10,000 events. An
// application whose tables are in another database stages events there instead: see
// package outbox.
//
// Errors: X_INVALID, X_ID_INVALID, and the store's.
func PublishTx[Tx any](ctx context.Context, db TxPublisher[Tx], tx Tx, events ...Event) (ids []string, err error) {
	batch := make([]store.EventParams, len(events))
	ids = make([]string, len(events))
	for i, e := range events {
		if batch[i], err = queue.PrepareEvent(e); err != nil {
			return nil, err
		}
		ids[i] = batch[i].ID
	}
	return ids, db.PublishTx(ctx, tx, batch)
}
