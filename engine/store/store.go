package store

import (
	"context"
	"errors"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
)

// ErrUnknown marks an error after which the operation may or may not have been
// done (an answer that was lost). Test with errors.Is.
var ErrUnknown = errors.New("outcome unknown")

// Store is every role at once: what engine.Config takes. Rooms below the facade
// take the one role they need.
type Store interface {
	Admin
	Auditor
	Claimer
	Clock
	Enqueuer
	Events
	Logs
	Notifier
	Pauser
	Schedules
	Settler
	Steps
	Workers
	// Name says which database this is, as in "sqlite".
	Name() string
	// Close waits for writes under way. Methods after it fail.
	Close() error
}

// Clock is the store's time.
type Clock interface {
	Now(ctx context.Context) (time.Time, error)
}

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

// Pauser stops claims of a queue, a job or a tenant until it is resumed. What is
// running goes on, and what is paused is counted as before.
type Pauser interface {
	// SetPause pauses or resumes, and answers whether that changed anything. The
	// first pause stands: another keeps its time, its author and its reason. No
	// claim that begins after it takes a run of what is paused.
	// Errors: X_INVALID for a kind that is none, or a name that is empty.
	SetPause(ctx context.Context, p PauseParams) (changed bool, err error)
	// ListPauses answers what is or was paused, by kind and name: who changed it
	// last is kept.
	ListPauses(ctx context.Context) ([]Pause, error)
	// Age lets the runs of a queue that have been ready for at least Waited go
	// before every priority, the longest waiting first, and answers how many more
	// do. A run that was aged keeps that.
	Age(ctx context.Context, p AgeParams) (int, error)
}

// PauseKind says what a pause is of.
type PauseKind string

// The kinds of pauses.
const (
	PauseQueue  PauseKind = "queue"
	PauseJob    PauseKind = "job"
	PauseTenant PauseKind = "tenant" // in every queue
)

// PauseParams pauses, or resumes. By says who, for people.
type PauseParams struct {
	Kind   PauseKind
	Name   string
	Resume bool
	By     string
	Reason string
}

// Pause is what is known of one. PausedAt is zero after it was resumed.
type Pause struct {
	Kind      PauseKind
	Name      string
	PausedAt  time.Time
	ChangedAt time.Time
	By        string
	Reason    string
}

// AgeParams bounds an ageing to Limit runs; 0 is 1,000.
type AgeParams struct {
	Queue  string
	Waited time.Duration
	Limit  int
}

// Settler ends attempts.
type Settler interface {
	// Settle ends each attempt with one fenced write and answers in order
	// whether it landed. Entries are independent: a miss does not stop others.
	// A settle repeated after ErrUnknown finds its own ordinal and answers Landed.
	Settle(ctx context.Context, batch []SettleParams) ([]SettleResult, error)
}

// SettleParams ends one attempt. The store checks Outcome.Settles(To), gives an
// uncounted attempt back, clears the claim, appends the attempt to the run's
// timeline (except a first attempt that completed) and, if To is terminal,
// stamps FinishedAt and ExpiresAt. Every outcome but Shed, which says nothing
// of the run, resets Orphans.
type SettleParams struct {
	Ref       job.Ref
	Outcome   job.Outcome
	To        job.State
	Delay     time.Duration // To delayed: from the store's now
	Output    []byte        // Completed
	Error     *job.Failure  // nil keeps what the run has
	Module    string        // digest to pin to; "" pins nothing
	Retention time.Duration // To terminal: how long it is kept; 0 keeps it for ever
	// Step, when not nil, is recorded in the same write. A sleeping or waiting
	// step's WakeAt becomes the run's due time; a wait that is over makes the run
	// due at once. The record of a run that suspends or
	// retries lands with its settle or not at all.
	Step *StepParams
	// Progress, when not nil, is the last value the handler reported.
	Progress *job.Progress
	// Invoke, when not nil, starts children and parks the run. To suspended.
	Invoke *InvokeParams
	// Parent is the run's: the run that may be waiting for its end, "" if none
	// can be. It is needed with To terminal only.
	Parent string
	// Invoked says that the run may have live children. It is needed with To
	// terminal only.
	Invoked bool
	// Log are lines of the attempt that are not saved yet, as in LogParams.
	Log []job.LogLine
	// Enqueue are runs that commit with the end: only the write that ends the
	// attempt inserts them, a repeat of it does not. They go in after all ends of
	// the batch, whose keys they may take.
	Enqueue []EnqueueParams
	// Wake is the run's queue if another process may have to look what waits for
	// the place that the end leaves, as a wake tells it soon after the commit; ""
	// if this process looks itself, or nothing is limited.
	Wake string
}

// SettleResult answers one SettleParams.
type SettleResult struct {
	Landed bool
	RunAt  time.Time // when the run is due again; zero if terminal
}

// Steps is the history of runs.
type Steps interface {
	// ListSteps returns the records of a run ordered by Seq. An unknown run has
	// none. Errors: X_JOB_ROW_STATUS_UNKNOWN for a record from another build.
	ListSteps(ctx context.Context, runID string) ([]job.Step, error)
	// Unwinds answers which of the runs were, or began to be, undone, and how. Runs
	// that are not there are left out.
	Unwinds(ctx context.Context, runIDs []string) (map[string]job.Unwind, error)
	// SaveSteps writes each record with one fenced write, together with what
	// the step enqueued, and answers in order. Entries are independent.
	SaveSteps(ctx context.Context, batch []StepParams) ([]StepResult, error)
}

// StepParams writes one record; an existing record of that name is replaced,
// keeping its StartedAt and Seq. Seq of a new record is one past the run's
// highest. A StepStarted over a record that is completed or failed lands and
// changes nothing: it is a write that was given up and repeated, and comes late.
type StepParams struct {
	Ref      job.Ref // ignored in SettleParams.Step
	Name     string
	Kind     job.StepKind
	Status   job.StepStatus
	Attempts int
	Output   []byte
	Error    *job.Failure
	Sleep    time.Duration // StepSleeping, StepWaiting: from the store's now, unless WakeAt is set
	WakeAt   time.Time
	Elapsed  time.Duration // StartedAt of a new record is the store's now less this
	Module   string        // digest to pin the run to; "" pins nothing
	// New says that the caller knows of no record of that name. It is a hint: a
	// record that exists is replaced all the same.
	New bool
	// Enqueue are the runs that commit with the record.
	Enqueue []EnqueueParams
	// OutputEnqueued makes the record's output the JSON array of
	// abi.EnqueueResult of Enqueue, so that a replay answers the same ids. An entry
	// that is answered with its own ID is not deduped there: this write was made
	// before, and its answer was lost.
	OutputEnqueued bool
	// Publish are the events that commit with the record.
	Publish []EventParams
	// Wait, of a record that is StepWaiting, is what it waits for. The write ends
	// it, as StepCompleted or StepTimedOut, if its event has come or its time is
	// over.
	Wait *WaitParams
}

// StepResult answers one StepParams. At is the record's FinishedAt.
type StepResult struct {
	Landed   bool
	At       time.Time
	Enqueued []EnqueueResult
	Output   []byte // with OutputEnqueued, and of a wait that is completed
	// Status and Place of a wait, as Step has them.
	Status job.StepStatus
	Place  int64
}

// Recorder is a store that writes steps and settles together.
type Recorder interface {
	// Record is SaveSteps and Settle, with one commit where it can be: for a
	// database of which each commit has a sync of its own. An error after which
	// some may have landed is ErrUnknown.
	Record(ctx context.Context, steps []StepParams, settles []SettleParams) ([]StepResult, []SettleResult, error)
}

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

// Notifier tells a worker of new work before its poll would find it. It is an
// optimisation: every run is found by polling when no wake arrives.
type Notifier interface {
	// Wakes calls wake with a queue's name after a commit made one of its runs
	// ready, whichever process committed it, and with "" when the queue is not
	// known. Bursts may be merged. It returns a stop func that waits for calls
	// under way. wake must not block.
	Wakes(wake func(queue string)) (stop func())
	// Listening reports whether wakes of other processes are known to arrive now,
	// so that polling may be rarer. It does not block.
	Listening() bool
}

// Admin is for operators and listings.
type Admin interface {
	// Get returns one run with input and output. Errors: X_JOB_NOT_FOUND.
	Get(ctx context.Context, id string) (job.Run, error)
	// List returns runs newest first (oldest first if asked), without Input and
	// Output; newest is by id, since ids are time-ordered. Runs with a state of
	// another build are left out. Errors: X_JOB_PAGE_INVALID, X_INVALID (State).
	List(ctx context.Context, p ListParams) ([]job.Run, error)
	// Attempts returns the timeline of a run in claim order.
	Attempts(ctx context.Context, runID string) ([]job.AttemptRecord, error)
	// Cancel ends a live run; a running one learns at its worker's next renewal.
	// One that has something to undo (a record of KindUndoable that is completed, or
	// one of KindUnwind) goes on living to be undone: it is ready, or suspended for
	// as long as a worker that has it may think so, see LetGo, and the record of its
	// KindUnwind says that it ends cancelled. With either, its live children are
	// cancelled as those of a run that ended.
	// Errors: X_JOB_NOT_FOUND, X_JOB_NOT_CANCELLABLE (terminal, or cancelled before
	// and being undone).
	Cancel(ctx context.Context, p CancelParams) (job.Run, error)
	// Requeue makes a terminal run ready again with attempt 0, keeping id,
	// claim ordinal and steps; Progress, Output and Orphans are cleared, and the
	// record that a first attempt left out when it completed is added. Errors:
	// X_JOB_NOT_FOUND, X_JOB_NOT_REQUEUEABLE (live, or undone: ErrUndone),
	// X_JOB_DUPLICATE (another live run holds the key), X_INVALID (FromStep names no
	// step).
	Requeue(ctx context.Context, p RequeueParams) (job.Run, error)
	// Promote makes a delayed run ready, due now if it was not; a ready one stays
	// as it is. Errors: X_JOB_NOT_FOUND, X_JOB_NOT_PROMOTABLE (suspended until a
	// later time, running or terminal).
	Promote(ctx context.Context, p PromoteParams) (job.Run, error)
	// Delete removes a run that is not running, with its steps and attempts, and
	// answers what it was. Nothing is undone, in a live one and its children either. Errors: X_JOB_NOT_FOUND, X_JOB_NOT_REMOVABLE.
	Delete(ctx context.Context, p DeleteParams) (job.Run, error)
	// Purge deletes finished runs whose ExpiresAt has passed, oldest first,
	// with their steps and attempts, and answers how many. It is not atomic:
	// with an error it answers how many were deleted before it.
	Purge(ctx context.Context, limit int) (int, error)
	// Stats counts for gauges, at a cost that no backlog raises: see StatsBounds.
	Stats(ctx context.Context) (Stats, error)
}

// ListParams filters a listing. Zero values filter nothing.
type ListParams struct {
	State    job.State
	Job      string
	Queue    string
	Tenant   *string // "" is untenanted
	IDPrefix string  // literal
	Parent   string
	Code     string    // of the run's error
	Since    time.Time // created then or later
	Until    time.Time // created before
	Before   string    // id of a run: only older ones, exclusive
	After    string    // id of a run: only newer ones, exclusive
	Oldest   bool      // oldest first
	Limit    int       // 0 is 100; at most 1,000
}

// CancelParams cancels one run. Reason, when not empty, becomes its error. By
// is who does it, for the audit; so in the other verbs.
type CancelParams struct {
	ID        string
	Reason    string
	Retention time.Duration // 0 keeps it for ever
	By        string
	// NoCompensate ends the run where it is, and the children that end with it.
	NoCompensate bool
}

// PromoteParams makes one run due now.
type PromoteParams struct {
	ID string
	By string
}

// DeleteParams removes one run.
type DeleteParams struct {
	ID string
	By string
}

// RequeueParams runs a finished run again. FromStep deletes that step's record
// and every record of a higher Seq. Attempts, when positive, replaces the run's
// maximum.
type RequeueParams struct {
	ID       string
	FromStep string
	Attempts int
	By       string
}

// Stats are counts by queue and job, and the age of the oldest due run.
type Stats struct {
	Now     time.Time
	Queues  []QueueStats // ordered by name
	Workers int          // with a lease that has not lapsed
}

// StatsBounds bound what Stats reads of each queue, so that no backlog makes it
// dear. A count that reaches its bound means "at least so many".
type StatsBounds struct {
	Ready int64 // ready runs counted
	Timed int64 // delayed and suspended runs counted, those due first
	// Lanes is how many lanes, which are pairs of tenant and priority, are
	// looked at for the oldest run of a queue that has more ready runs than are
	// counted. With more lanes OldestDue is the oldest of what was looked at.
	Lanes int64
}

// DefaultStatsBounds are those of every store.
func DefaultStatsBounds() StatsBounds {
	return StatsBounds{Ready: 100_000, Timed: 10_000, Lanes: 1000}
}

// QueueStats is one queue's. A run is in exactly one bucket: Ready counts ready
// and due delayed or suspended runs, Delayed those with a future time. Ready,
// Delayed and Suspended stop at the StatsBounds; the others are exact.
type QueueStats struct {
	Queue     string
	Ready     int64
	Delayed   int64
	Running   int64
	Suspended int64
	Done      int64
	Failed    int64
	Dead      int64
	Cancelled int64
	OldestDue time.Time // zero when none is ready
}

// Migrator is the schema of a database, apart from Store since it is used
// before a store can be opened.
type Migrator interface {
	// Migrate brings the schema to Latest and answers the versions it applied.
	Migrate(ctx context.Context) ([]int, error)
	// Version is the schema's version; 0 is an empty database.
	Version(ctx context.Context) (int, error)
	// Latest is the version this build knows.
	Latest() int
}
