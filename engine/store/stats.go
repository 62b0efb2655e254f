package store

import (
	"time"
)

// Stats are counts by queue and job, and the age of the oldest due run.
type Stats struct {
	Now     time.Time
	Queues  []QueueStats // ordered by name
	Workers int          // with a lease that has not lapsed
	// Events is how many are kept, to StatsBounds.Events, with those that have
	// expired and are not purged yet. OldestEvent is when the first of them was
	// published; zero without any.
	Events      int64
	OldestEvent time.Time
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
	// Events is how many events are counted, of all topics together.
	Events int64
}

// DefaultStatsBounds are those of every store.
func DefaultStatsBounds() StatsBounds {
	return StatsBounds{Ready: 100_000, Timed: 10_000, Lanes: 1000, Events: 100_000}
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

	// Counting stopped at a bound, and there may be more: of Ready, of Delayed
	// and Suspended.
	ReadyAtLeast, TimedAtLeast bool
}

// AddReady adds n runs that were counted as claimable, of which b.Ready are told.
func (q *QueueStats) AddReady(b StatsBounds, n int64) {
	q.Ready = min(q.Ready+n, b.Ready)
	q.ReadyAtLeast = q.ReadyAtLeast || q.Ready == b.Ready
}

// AddTimed adds what was counted of the runs that wait for a time: the due ones
// before the others, and b.Timed of all.
func (q *QueueStats) AddTimed(b StatsBounds, due, delayed, suspended int64) {
	q.AddReady(b, due)
	q.Delayed, q.Suspended = delayed, suspended
	q.TimedAtLeast = due+delayed+suspended >= b.Timed
	q.ReadyAtLeast = q.ReadyAtLeast || due >= b.Timed
}
