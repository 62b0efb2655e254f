package store

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// Events keeps what is published, for as long as it is asked to, and makes runs
// that wait for it ready in the commit that publishes.
//
// Events of a topic have the order of their Seq, in which they also become
// visible: one with a lower Seq is never seen after one with a higher. A wait
// has a place in that order: only events past it count.
//
//	a run parks      its wait is ended at once if an event past its place has
//	                 come, or its time; else it is suspended until either
//	an event comes   each run that is parked for its topic, and its key or any,
//	                 and whose time is not over, is ready in the same commit,
//	                 and its wait has the event as its output
//
// A run and an event of two tenants never meet: a run gets the events of its own
// tenant and those of none, and a run of no tenant gets all.
//
// The two exclude each other, so that no event falls between them.
type Events interface {
	// Publish adds a batch, in order. An event whose ID was published before, and
	// has not expired since, publishes nothing and is answered with Deduped.
	Publish(ctx context.Context, batch []EventParams) ([]EventResult, error)
	// PendingEvent reports whether a wait of a tenant's run would be ended by an
	// event that has come already. Nothing changes; an event may come right after
	// a no.
	PendingEvent(ctx context.Context, tenant string, p WaitParams) (bool, error)
	// InvokeDepth answers how many runs wait for this one, each for the next,
	// counted to most. A run that nobody waits for, or that is not there, has 0.
	InvokeDepth(ctx context.Context, runID string, most int) (int, error)
	// ListEvents returns events that have not expired, newest first.
	// Errors: X_JOB_PAGE_INVALID.
	ListEvents(ctx context.Context, p ListEventsParams) ([]job.Event, error)
	// PurgeEvents deletes events that have expired, oldest first, and answers
	// how many.
	PurgeEvents(ctx context.Context, limit int) (int, error)
}

// EventParams is one event to publish. It has been validated.
type EventParams struct {
	ID      string // canonical lower-case UUID
	Topic   string
	Key     string // what it is about; "" is nothing in particular
	Tenant  string // whose runs get it; "" is everybody's
	Payload []byte
	Keep    time.Duration // from the store's now; positive
	Run     string        // that publishes it; "" is none
	By      string        // who does
}

// EventResult answers one EventParams.
type EventResult struct {
	Seq     int64
	At      time.Time
	Deduped bool
	Woken   int // runs that waited for it
}

// WaitParams say which events a wait takes: those of Topic, with Key unless it
// is "", past the place After in their order, which FromNow makes the end of
// what is published at the moment of the write.
type WaitParams struct {
	Topic   string
	Key     string
	After   int64
	FromNow bool
}

// ListEventsParams filters a listing. Zero values filter nothing.
type ListEventsParams struct {
	Topic  string
	Key    string
	Tenant string
	Before int64 // Seq: only older ones, exclusive
	Limit  int   // 0 is 100; at most 1,000
}

// InvokeParams, in a settle to suspended, start child runs and park the run
// until at most Most of its children are live; at once, if so few are.
//
// A child has a record in its parent's history, named Name and of KindInvoke. It
// is StepWaiting while the child lives; the write that ends the child makes it
// StepCompleted with its output or StepFailed with its error, and its parent
// ready if it is parked for that. So the parent does not need the child's row
// any more. A child whose key a live run holds, or whose ID is taken, is not
// started: its record is StepFailed with X_JOB_DUPLICATE.
//
// A child with a Timeout that is live when it is over is not waited for: the park of
// its parent at that time, or later, makes its record StepFailed with
// X_CHILD_TIMEOUT and cancels it, unless it is to be abandoned. So a parent that is
// parked is due at the first of these times.
//
// When the parent ends first, its live children are cancelled in the same write,
// and theirs, but for those to be abandoned. Their records become StepRetrying:
// a parent that is requeued starts them anew.
type InvokeParams struct {
	Start []ChildParams
	Most  int
	Timed bool // some of its children, of now or before, have a Timeout
}

// ChildParams is one child to start.
type ChildParams struct {
	Name      string // of the record
	Run       EnqueueParams
	Abandon   bool          // it outlives its parent
	Retention time.Duration // of its run, should it be cancelled with its parent
	Timeout   time.Duration // from now; 0 is none
}

// InvokeHorizon is when a run that waits for its children is due at the latest:
// never, as far as anyone will see.
const InvokeHorizon = 100 * 365 * 24 * time.Hour

// The words of records whose child did not end by itself.

// ChildHeld is the failure of a child that was not started, since a run holds its
// key (or is of its id).
func ChildHeld(jobName, holder string) *job.Failure {
	return &job.Failure{
		Code:    job.CodeDuplicate,
		Message: "a run of job " + jobName + " holds the child's key, and is not this run's: " + holder,
		Fix:     "let it end, or invoke the child under another key",
	}
}

// ChildTimedOut is the failure of a child that was not waited for any longer.
func ChildTimedOut(abandoned bool) *job.Failure {
	f := &job.Failure{Code: job.CodeChildTimeout, Message: "the child was not done in time, and was cancelled"}
	if abandoned {
		f.Message = "the child was not done in time; it goes on"
	}
	return f
}

// ChildTooLate is why a child was cancelled that its parent waits for no longer.
func ChildTooLate(parent string) *job.Failure {
	return &job.Failure{Code: job.CodeCancelled, Message: "run " + parent + " waits for this one no longer"}
}

// ChildEnded is the failure of a child that ended in a state without words of
// its own.
func ChildEnded(state job.State) *job.Failure {
	if state == job.Cancelled {
		return &job.Failure{Code: job.CodeCancelled, Message: "the child was cancelled"}
	}
	return &job.Failure{Code: job.CodeChildFailed, Message: "the child ended " + string(state)}
}

// ChildLeft is the reason in a record whose run ended before the child did.
func ChildLeft(abandoned bool) *job.Failure {
	if abandoned {
		return &job.Failure{Code: job.CodeCancelled, Message: "this run ended before its child, which went on"}
	}
	return &job.Failure{Code: job.CodeCancelled, Message: "this run ended before its child, which was cancelled"}
}

// ParentEnded is why a child was cancelled.
func ParentEnded(parent string) *job.Failure {
	return &job.Failure{Code: job.CodeCancelled, Message: "run " + parent + ", which waited for this one, ended"}
}

// Deleted is why a run that was deleted while it was live ended.
func Deleted() *job.Failure {
	return &job.Failure{Code: job.CodeCancelled, Message: "the run was deleted"}
}
