package job

// Outcome is how one attempt was settled.
type Outcome string

const (
	// Completed: the handler returned. To done.
	Completed Outcome = "completed"
	// Slept: the run waits for a time or an event. To suspended, uncounted.
	Slept Outcome = "suspended"
	// Retried: failed with attempts left. To delayed (or ready without a wait).
	Retried Outcome = "retried"
	// DeadLettered: failed for good. To dead.
	DeadLettered Outcome = "dead-lettered"
	// Dropped: failed for good and the job keeps no dead letters. To failed.
	Dropped Outcome = "dropped"
	// Interrupted: a drain cut it short. To ready, uncounted.
	Interrupted Outcome = "interrupted"
	// Deferred: the handler was rate limited. To delayed, uncounted.
	Deferred Outcome = "deferred"
	// Shed: claimed but never begun (a limit was full, or the claimer cannot
	// serve the job). To ready or delayed, uncounted.
	Shed Outcome = "shed"
	// Unwinding: failed for good, and completed steps are to be undone first. To
	// ready. Written by a cancel, too, which takes the run from its worker.
	Unwinding Outcome = "unwinding"
	// Undone: a run that was cancelled has had its steps undone. To cancelled.
	Undone Outcome = "undone"
	// Refused: a keyed limit was held by another run. To failed, uncounted.
	Refused Outcome = "refused"
	// Orphaned: its worker's lease lapsed. Written by the reclaim, never by an
	// attempt. To ready, or to dead or failed when no attempt is left.
	Orphaned Outcome = "orphaned"
)

// Counted reports whether an attempt that ended so stays counted against the
// run's attempts.
func (o Outcome) Counted() bool {
	switch o {
	case Slept, Interrupted, Deferred, Shed, Refused:
		return false
	}
	return true
}

// Settles reports whether an attempt may be settled with o from running to
// state to. It is the table that every store refuses to leave.
func (o Outcome) Settles(to State) bool {
	switch o {
	case Completed:
		return to == Done
	case Undone:
		return to == Cancelled
	case Slept:
		return to == Suspended
	case Retried, Deferred, Shed:
		return to == Ready || to == Delayed
	case Interrupted, Unwinding:
		return to == Ready
	case DeadLettered:
		return to == Dead
	case Dropped, Refused:
		return to == Failed
	}
	return false
}
