package job

import (
	"encoding/json"
	"fmt"
	"time"
)

// StepStatus is what is known of a step.
type StepStatus string

const (
	StepStarted   StepStatus = "started"   // a once step whose outcome is not known
	StepCompleted StepStatus = "completed" // Output replays
	StepFailed    StepStatus = "failed"    // failed for good; Error replays
	StepRetrying  StepStatus = "retrying"  // failed, to be run again; replays nothing
	StepSleeping  StepStatus = "sleeping"  // WakeAt replays
	StepWaiting   StepStatus = "waiting"   // for an event until WakeAt, or for a child run
	StepTimedOut  StepStatus = "timed-out" // a wait whose time passed without its event; replays
)

// ParseStepStatus returns the status that s spells; a text from another build
// is an error, since mistaking one re-runs a step.
func ParseStepStatus(s string) (StepStatus, error) {
	switch st := StepStatus(s); st {
	case StepStarted, StepCompleted, StepFailed, StepRetrying, StepSleeping, StepWaiting, StepTimedOut:
		return st, nil
	}
	return "", fmt.Errorf("unknown step status %q", s)
}

// StepKind is which call made a record.
type StepKind string

const (
	KindStep StepKind = "step"
	// KindUndoable is a step that completed and has a compensator.
	KindUndoable StepKind = "undoable"
	KindSleep    StepKind = "sleep"
	KindEnqueue  StepKind = "enqueue"
	KindPublish  StepKind = "publish"
	KindWait     StepKind = "wait"
	KindInvoke   StepKind = "invoke"
	// KindUnwind marks that a run is being undone: its Output is an Unwind, its
	// Error what the run failed of. KindCompensation is the undoing of one step.
	// Both are the engine's, and replay nothing.
	KindUnwind       StepKind = "unwind"
	KindCompensation StepKind = "compensation"
)

// Names of the records that an unwind leaves. A handler's own steps may not be
// named so in a job that compensates.
const (
	UnwindName         = "compensate"
	CompensationPrefix = "compensate:" // and the name of the step that is undone
)

// Unwind is how a run is undone and ends: once it is recorded, every later
// attempt undoes completed steps, and the handler is not run forward again.
type Unwind struct {
	// From is the last attempt that ran forward; as many again may undo.
	From int `json:"from"`
	// Cancelled says that the run ends cancelled, as someone asked, rather than by
	// a failure of its own.
	Cancelled bool `json:"cancelled,omitempty"`
}

// UnwindFrom is how a run is undone that was not until now. An attempt beyond the
// run's own was handed out to undo, whether or not it came to record so.
func UnwindFrom(r *Run) Unwind { return Unwind{From: min(r.Attempt, r.MaxAttempts)} }

// ParseUnwind reads the output of a record of KindUnwind.
func ParseUnwind(output []byte) (u Unwind, err error) {
	if err := json.Unmarshal(output, &u); err != nil {
		return u, fmt.Errorf("the record of an unwind cannot be read: %w", err)
	}
	return u, nil
}

// StoppedUndoing reports whether a run ended before it was undone to its end, of
// which failure is what its record of KindUnwind says that it failed of: undone to
// its end, it ends with that, or cancelled.
func (r *Run) StoppedUndoing(failure Failure) bool {
	return (r.State == Dead || r.State == Failed) && (r.Error.Code != failure.Code || r.Error.Message != failure.Message)
}

// HalfUndone names the steps of r that wait for a person, the last first: r stopped
// before they were undone. None says that r did not, or that nothing is left.
func HalfUndone(r *Run, steps []Step) []string {
	if r.State.Live() {
		return nil
	}
	return ToUndo(r, steps)
}

// ToUndo names the steps of r that are still to be undone, in the order in which they
// are: r is live and has begun to be undone, or it stopped half undone.
func ToUndo(r *Run, steps []Step) (left []string) {
	undoes := false
	undone := map[string]bool{}
	for i := range steps {
		switch s := &steps[i]; {
		case s.Kind == KindUnwind:
			undoes = r.State.Live() || r.StoppedUndoing(s.Error)
		case s.Kind == KindCompensation && s.Status == StepCompleted:
			undone[s.Name] = true
		}
	}
	if !undoes {
		return nil
	}
	for i := len(steps) - 1; i >= 0; i-- {
		if s := &steps[i]; s.Kind == KindUndoable && s.Status == StepCompleted && !undone[CompensationPrefix+s.Name] {
			left = append(left, s.Name)
		}
	}
	return left
}

// Step is one record of a run's history. (run, Name) is unique; Seq is the
// order in which the run first reached it, from 1.
type Step struct {
	Name       string
	Seq        int
	Kind       StepKind
	Status     StepStatus
	Attempts   int    // bodies that failed
	Output     []byte // JSON, of a completed step
	Error      Failure
	WakeAt     time.Time // of a sleep; of a wait, when its time is over
	StartedAt  time.Time // when the body first began; kept by later writes
	FinishedAt time.Time // when the record took its present status
	Topic      string    // of a wait
	EventKey   string    // of a wait; "" takes events of any
	Place      int64     // of a wait: where the next one for the same events goes on
	Child      string    // of an invoke: the run
}
