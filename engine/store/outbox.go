package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// Outbox is a table of an application's own database, in which an enqueue
// commits or vanishes with the application's rows. A relay publishes what is
// staged there to a queue, which may be in another database.
//
// Only a database that an application shares with us can have one: the
// embedded store's file belongs to the runner alone, so Postgres has the only
// implementation.
//
// A staged row is of one State: staged, until a relay has published it or
// refused it for good. Order is that of staging, a counter's, and not of a
// clock: all rows of a transaction may have one time. A transaction that
// commits late comes late, whatever it staged first.
type Outbox interface {
	OutboxRelay
	OutboxAdmin
	// Close waits for what is under way. Methods after it fail.
	Close() error
}

// OutboxRelay is what a relay asks of an outbox.
type OutboxRelay interface {
	// Claim stamps staged rows that nobody holds, or whose lease has lapsed,
	// with the relay and an ordinal that counts the claims of that row, in one
	// statement, and answers them in the order of staging. Rows that this very
	// relay still holds are claimed anew: it has one batch at a time, so these
	// are left over. Inputs above MaxStagedBytes in all end the batch early.
	// Errors: X_INVALID for a lease that CheckLease refuses, or a negative limit.
	Claim(ctx context.Context, p StagedClaimParams) ([]Staged, error)
	// SettleStaged ends rows, each with one fenced write that lands only while
	// the row is staged under that relay and ordinal, and answers in order
	// whether it did. A miss does not stop others. Repeated after ErrUnknown it
	// answers true again.
	SettleStaged(ctx context.Context, batch []StagedSettleParams) ([]bool, error)
	// Release gives rows back, claimable at once, under the same fence. An empty
	// batch does not touch the database.
	Release(ctx context.Context, refs []StagedRef) error
	// Purge deletes rows published longer ago than keep, at most limit, and
	// answers how many.
	Purge(ctx context.Context, keep time.Duration, limit int) (int, error)
	// OutboxStats counts for gauges.
	OutboxStats(ctx context.Context) (OutboxStats, error)
	// Wakes calls wake after a commit that staged rows, as far as such news
	// arrives; polling finds them all. wake must not block. stop waits for a
	// call under way.
	Wakes(wake func()) (stop func())
	// Listening reports whether wakes are known to arrive.
	Listening() bool
}

// OutboxAdmin is what an operator asks of an outbox.
type OutboxAdmin interface {
	// ListStaged returns rows, those staged last first, without Input and Payload.
	// Errors: X_INVALID for a state there is not, X_JOB_PAGE_INVALID.
	ListStaged(ctx context.Context, p ListStagedParams) ([]Staged, error)
	// Auditor tells who staged which rows again: the entries are in the outbox's own
	// database, where the commit that does it is.
	Auditor
	// RetryStaged stages rejected rows again, at their old place in the order,
	// and answers their ids. Errors: X_OUTBOX_NOT_FOUND and
	// X_OUTBOX_NOT_REJECTED for an id; nothing has changed then.
	RetryStaged(ctx context.Context, p RetryStagedParams) ([]string, error)
}

// MaxStagedBytes bounds the inputs of one claim. One row may exceed it.
const MaxStagedBytes = 8 << 20

// StagedState says what became of a row.
type StagedState string

const (
	Waiting   StagedState = "staged"    // until a relay has dealt with it
	Published StagedState = "published" // a run stands for it
	Rejected  StagedState = "rejected"  // no queue can take it as it is
)

// Valid reports whether s is a state.
func (s StagedState) Valid() bool { return s == Waiting || s == Published || s == Rejected }

// StagedRef is the fencing token of a claimed row.
type StagedRef struct {
	ID    string
	Relay string
	Claim int64
}

// OnConflict says what a staged row wants if a live run holds its key.
type OnConflict string

const (
	ConflictDedupe OnConflict = "dedupe" // the holder stands for it
	ConflictReject OnConflict = "reject" // it is rejected with X_JOB_DUPLICATE
)

// Staged is a row of an outbox.
type Staged struct {
	StageParams
	// Event, when not nil, is what is staged in place of a run: of StageParams there
	// is the ID alone then.
	Event    *PublishParams
	State    StagedState
	StagedAt time.Time
	// Age is how long ago it was staged, by the outbox's clock.
	Age   time.Duration
	Relay string // that holds it, or settled it
	Claim int64  // how often it was claimed
	// SettledAt, RunID, Code and Reason tell of a row that is not staged any more.
	SettledAt time.Time
	RunID     string // of the run that stands for it
	Code      string
	Reason    string
}

// Ref is the row's fencing token.
func (s *Staged) Ref() StagedRef { return StagedRef{ID: s.ID, Relay: s.Relay, Claim: s.Claim} }

// StageParams is what an application stages. Empty values ask for what the job
// declares.
type StageParams struct {
	// ID is the id of the row and of the run that it becomes: a canonical
	// lower-case UUID. Empty: a time-ordered one is made. An id that is staged
	// already stages nothing.
	ID    string
	Job   string
	Input []byte // JSON; empty is null
	// Key is the idempotency key, Tenant whose run it is; see queue.Request.
	Key    string
	Tenant string
	// RunAt is when the run becomes due. It excludes Delay, which counts from
	// the staging.
	RunAt       time.Time
	Delay       time.Duration
	Priority    *int
	MaxAttempts int
	OnConflict  OnConflict // "" is ConflictDedupe
	// EnqueuedBy records who asked; "" is the role of the database session.
	EnqueuedBy  string
	Traceparent string
}

// StagedClaimParams asks for rows. Relay is unique per process start.
type StagedClaimParams struct {
	Relay string
	Limit int
	Lease time.Duration
}

// StagedSettleParams ends one row: as published by the run RunID, which an event
// has none of, or, with a Code, as rejected.
type StagedSettleParams struct {
	Ref    StagedRef
	RunID  string
	Code   string
	Reason string
}

// ListStagedParams filters a listing. Zero values filter nothing.
type ListStagedParams struct {
	State  StagedState
	Job    string
	Code   string
	Before string // id of a row: only those staged before it
	Limit  int    // 0 is 100; at most 1,000
}

// RetryStagedParams names rejected rows, by id or else by Job and Code, of
// which empty ones filter nothing. Without any of them All must be said: ids that
// somebody found none of are not every row there is. Limit bounds what is not named
// by id; 0 is 1,000, which is also the most.
type RetryStagedParams struct {
	IDs   []string
	Job   string
	Code  string
	All   bool
	Limit int
	By    string // who does it, for the audit
}

// OutboxStats are counts for gauges. Those of rows stop at MaxStagedCount: more
// would take the longer to count the later they are published.
type OutboxStats struct {
	Waiting  int64
	Rejected int64
	Oldest   time.Duration // age of the row that was staged first; 0 without any
}

// MaxStagedCount is where the counts of OutboxStats stop.
const MaxStagedCount = 100_000

// MaxLease bounds a relay's lease: what a killed relay held waits that long.
const MaxLease = time.Hour

// CheckLease refuses a lease that would be over at once, never, or not where it
// seems: it is a positive number of whole milliseconds up to MaxLease.
// Errors: X_INVALID.
func CheckLease(d time.Duration) error {
	if d > 0 && d <= MaxLease && d%time.Millisecond == 0 {
		return nil
	}
	return &abi.Error{
		Code:    job.CodeInvalid,
		Message: fmt.Sprintf("a relay's lease cannot be %v", d),
		Fix:     "give it whole milliseconds, from 1ms to 1h; 30s is usual",
	}
}
