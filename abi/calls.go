package abi

import (
	"context"
	"time"
)

// Calls is what a guest may ask of its host during one attempt. A host calls it
// from one goroutine at a time, in the order of the guest's calls.
//
// Every method may return three kinds of error: a *Refusal is answered to the
// guest as its negative code; a *Violation unwinds the guest and fails the
// attempt for good; any other error unwinds the guest and comes back to whoever
// called Guest.Run as Outcome.Err, untouched. A method that blocks watches ctx.
//
// Where a method answers an instant, that instant is the run's clock from then
// on: what now() gives a guest outside steps.
type Calls interface {
	Steps
	Timers
	Emitter
	Journal
	Extras
}

// Steps is the durable memory of a run.
type Steps interface {
	// StepBegin opens the step name, or answers its record. The same name twice
	// in one attempt, and a step inside a step, are Violations.
	StepBegin(ctx context.Context, name string, flags StepFlags) (StepBegun, error)
	// StepEnd records the open step's output (JSON) and returns once it is
	// durable. It is called even when ctx has ended, since the body has run: an
	// implementation whose claim may be gone returns the context's cause, one that
	// knows the claim to be its own (a drain) may still record.
	StepEnd(ctx context.Context, output []byte) (time.Time, error)
	// StepFail reports the open step's failure. A nil error says that it is
	// final and recorded, and the guest goes on; while a retry is left the
	// error unwinds the guest.
	StepFail(ctx context.Context, f Failure) (time.Time, error)
}

// StepBegun is the answer of StepBegin. Record is the output (StepDone) or the
// JSON Failure (StepFailed); At is when the record was made. Both are zero for
// StepRun.
type StepBegun struct {
	State  StepState
	Record []byte
	At     time.Time
}

// Timers suspend a run without holding anything.
type Timers interface {
	// Sleep returns nil once d has passed since the run first asked for the
	// sleep of that name; until then its error unwinds the guest.
	Sleep(ctx context.Context, name string, d time.Duration) (time.Time, error)
	// SleepUntil is Sleep with the instant at which it ends, as the run first
	// gave it.
	SleepUntil(ctx context.Context, name string, t time.Time) (time.Time, error)
	// WaitEvent returns the payload of the event that the wait is for; until then
	// its error unwinds the guest. A run's first wait for a topic and key takes
	// the first event published after it began, a later one goes on where the one
	// before ended: no event is missed between the two, and none answers both. A
	// Refusal with CodeTimeout, and an instant, says that the timeout passed
	// without one, which no later event changes.
	WaitEvent(ctx context.Context, p WaitParams) ([]byte, time.Time, error)
}

// Emitter sends work elsewhere. Inside a step what it sends commits with the
// step or vanishes with its failure; outside it is recorded as a step itself.
type Emitter interface {
	Enqueue(ctx context.Context, runs []EnqueueParams) ([]EnqueueResult, error)
	Publish(ctx context.Context, e PublishParams) error
	// Invoke makes child runs and returns how they ended, in order, once all
	// have settled; until then its error unwinds the guest. At most limit of them
	// are live at a time; 0 is MaxInvoke.
	Invoke(ctx context.Context, runs []EnqueueParams, limit int) ([]InvokeResult, time.Time, error)
}

// Journal tells people what happens. It cannot fail the guest.
type Journal interface {
	Log(ctx context.Context, level Level, line string)
	Progress(ctx context.Context, permille int, note string)
}

// Extras are the functions that a feature bit announces.
type Extras interface {
	// Features says which optional methods of this Calls do not answer
	// CodeUnsupported. A host adds the bits of the capabilities it grants.
	Features() Features
	// Compensate opens the undoing of a completed step and answers its name: the
	// last first, of those that began with StepCompensated in this attempt. ""
	// says that nothing is to be undone, or nothing is left. StepEnd and StepFail
	// end it as they end a step.
	//
	// While a run is being undone, what has no record is refused with
	// CodeUnwinding: its guest runs only to say how each step is undone.
	Compensate(ctx context.Context) (string, error)
	// SQL runs a statement that commits with the open step.
	SQL(ctx context.Context, request []byte) ([]byte, error)
}
