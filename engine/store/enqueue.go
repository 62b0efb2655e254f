package store

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// Enqueuer inserts runs.
type Enqueuer interface {
	// Enqueue inserts a batch in request order and answers one result each. An
	// entry whose (job, tenant, key) is held by a live run, or by an earlier
	// entry of the batch, inserts nothing and answers that run with Deduped.
	// An entry whose ID names a run in any state inserts nothing and answers
	// Deduped with that ID.
	Enqueue(ctx context.Context, batch []EnqueueParams) ([]EnqueueResult, error)
	// EnqueueIf is Enqueue in one transaction that commits only if accept answers
	// nil to the results; otherwise nothing is inserted and accept's error is the
	// answer. accept may be called again after a transaction that came to nothing,
	// holds it open meanwhile, and must not use the store.
	EnqueueIf(ctx context.Context, batch []EnqueueParams, accept func([]EnqueueResult) error) ([]EnqueueResult, error)
	// FindLive returns the id of the live run that holds the key, or "".
	FindLive(ctx context.Context, jobName, tenant, key string) (string, error)
}

// EnqueueParams is one run to insert. It has been validated: the store trusts
// everything but uniqueness.
type EnqueueParams struct {
	ID          string // canonical lower-case UUID, time-ordered
	Job         string
	Queue       string
	Tenant      string
	Key         string
	Gate        string // limit that it is under, as package limit names it; "" is none
	Input       []byte
	Priority    int
	MaxAttempts int
	RunAt       time.Time     // zero: the store's now plus Delay
	Delay       time.Duration // only without RunAt
	Parent      string
	EnqueuedBy  string
	Traceparent string
	// Minted says that ID was made from random bits for this very write, which is
	// made for the first time: no run has it, and nobody knows it.
	Minted bool
	// Worker, when not empty, would begin the run at once. A store that HandsOver
	// may insert the run as claimed by it, in the one write, if a claim by that
	// worker now would take it and nothing before it: the worker holds a lease, the
	// queue is not paused, and nothing else in it is due.
	Worker string
}

// EnqueueResult says which run stands for an entry.
type EnqueueResult struct {
	ID      string
	Deduped bool
	State   job.State // ready or delayed, running with Run; of a deduped entry: the holder's
	// Run, when not nil, was claimed for EnqueueParams.Worker, as Claim would have.
	Run *job.Run
}

// HandsOver marks a store that heeds EnqueueParams.Worker.
type HandsOver interface {
	HandsOver()
}
