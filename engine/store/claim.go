package store

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
)

// Claimer hands out due runs.
type Claimer interface {
	// Claim moves due runs to running under Worker, counting the attempt and
	// advancing the claim ordinal. It rotates over the tenants that have due
	// runs, so that one tenant's backlog delays another by one rotation at
	// most; within a tenant lower priorities go first, then earlier due times,
	// then ids. What is paused is passed over. A delayed or suspended run whose time
	// has come may be made ready by any claim before one takes it.
	//
	// Limits are kept over all claims of a database, to the run: what is running
	// is counted, and what a rate allows is spent, in the claim's own transaction.
	// A run that finds the gate of its job full is set aside: it stays ready, and
	// is passed over without a cost until the gate may have room, which is known
	// with the commit that ends a run there. Only runs that were claimed under a
	// limit count towards it.
	// Errors: X_JOB_CLAIM_QUEUES_EMPTY without queues; X_INVALID for a negative limit.
	Claim(ctx context.Context, p ClaimParams) (ClaimResult, error)
}

// ClaimParams asks for runs. Worker must be registered with a lease that has
// not lapsed, otherwise nothing is claimed and the result says WorkerGone.
type ClaimParams struct {
	Worker string
	Queues []QueueLimit
}

// QueueLimit is how many runs of one queue a claim may take; 0 takes none.
type QueueLimit struct {
	Queue string
	Limit int
	// Limits are what the queue's runs are held to; nil is nothing. They are the
	// caller's for the time of the call.
	Limits *limit.Queue
	// Recheck has the claims to come look behind every gate of the queue, as after
	// a change of the limits, not only behind those where a run has ended.
	Recheck bool
}

// ClaimResult is what was claimed. Runs carry Input but no Output.
type ClaimResult struct {
	Runs       []job.Run
	WorkerGone bool
	Now        time.Time
	// NextDue is when the next run of the asked queues becomes due; zero when
	// none waits for a time. A hint: it may be early, never late. It tells of a
	// rate that is spent too.
	NextDue time.Time
	// Busy names, by the id of a claimed run that is not to begin, the run that
	// holds its key: a limit that does not wait was full. It holds no gate and is
	// to be settled as refused.
	Busy map[string]string
}
