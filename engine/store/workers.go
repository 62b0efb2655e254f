package store

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// Workers keeps the heartbeat rows. A run's lease is its worker's: it lapses
// with the row, for all runs at once.
type Workers interface {
	// Register adds a worker whose id no row has ever had. Errors: X_INVALID for
	// an id that is registered, or a lease of nothing.
	Register(ctx context.Context, p RegisterParams) error
	// Renew extends a lease that has not lapsed and answers which of the held
	// runs are still running under their Ref, in one round trip. A lapsed or
	// unknown worker is answered with Alive false and every held Ref in Lost;
	// nothing revives it.
	Renew(ctx context.Context, p RenewParams) (RenewResult, error)
	// Deregister removes the row; runs it still holds are ready at once,
	// uncounted, with an interrupted attempt in their timeline. A renewal after
	// it does not bring the row back.
	Deregister(ctx context.Context, worker string) error
	// Reclaim ends the claims of lapsed workers in one atomic write that
	// re-checks that they have lapsed: a run with attempts left becomes ready
	// with its attempt counted and Orphans one higher; one without, or with
	// MaxOrphans reached, is buried as dead (failed for DropJobs) with
	// X_JOB_MAX_ATTEMPTS or X_JOB_WORKER_LOST (which wins if both hold). The
	// timeline gets an orphaned attempt; the run's own Error is set by a burial
	// only. Lapsed rows without runs are removed.
	Reclaim(ctx context.Context, p ReclaimParams) (ReclaimResult, error)
	// LetGo says that the attempt of ref is over, though it will not be settled. If it
	// was a cancel that took the run, and nobody has claimed it since, the run is ready
	// to be undone at once, which otherwise waits until the lease would have lapsed
	// under which the attempt was begun.
	LetGo(ctx context.Context, ref job.Ref) error
	// ListWorkers returns the registered workers ordered by id.
	ListWorkers(ctx context.Context) ([]Worker, error)
}

// RegisterParams announces a worker. ID is unique per process start. Alone
// says that the caller has proved that no other worker of this database is
// alive (it holds the lock of an embedded database): every other row lapses.
type RegisterParams struct {
	ID     string
	Host   string
	PID    int
	Queues []string
	Lease  time.Duration
	Alone  bool
}

// RenewParams renews a lease of the given length from now.
type RenewParams struct {
	Worker string
	Lease  time.Duration
	Held   []job.Ref
	// Queues, when not nil, are served from now on.
	Queues []string
	// Progress is what runs have reported that the worker holds. That of a run
	// which is not held any more, or of a worker that is not alive, goes nowhere. It
	// names no run twice.
	Progress []HeldProgress
}

// HeldProgress is what the handler of a held run reported last.
type HeldProgress struct {
	Ref      job.Ref
	Progress job.Progress
}

// RenewResult answers a renewal. Lost are the held refs that are no longer the
// worker's: cancelled, reclaimed or settled.
type RenewResult struct {
	Alive bool
	Lost  []LostRun
}

// LostRun is a held run that is not the worker's any more, and why.
type LostRun struct {
	Ref job.Ref
	// State is the run's state now; "" if it is gone. It is cancelled, too, if it was
	// a cancel that ended this claim, to have the run undone.
	State job.State
}

// ReclaimParams bounds one reclaim. Limit 0 is 1,000 runs. MaxOrphans is how many leases may lapse in
// a row before a run is buried whatever attempts remain; 0 is no bound.
type ReclaimParams struct {
	Limit      int
	MaxOrphans int
	DropJobs   []string
	// UnwindJobs compensate: a run of theirs that has steps is handed out beyond
	// its attempts, to be undone, up to as many again.
	UnwindJobs []string
	// Retention of buried runs by job; a job not named is kept for ever.
	Retention map[string]time.Duration
	// Follow, when not nil, answers the runs that commit with a burial. It is
	// given the run as it was buried, may be called again after a transaction that
	// came to nothing, and must not use the store. Its error fails the reclaim.
	Follow func(job.Run) ([]EnqueueParams, error)
}

// ReclaimResult names what moved, without Input and Output.
type ReclaimResult struct {
	Requeued []job.Run
	Buried   []job.Run // State is dead or failed
}

// Worker is a registered worker.
type Worker struct {
	ID        string
	Host      string
	PID       int
	Queues    []string
	StartedAt time.Time
	RenewedAt time.Time
	ExpiresAt time.Time
	Running   int
}
