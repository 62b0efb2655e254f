package abi

import (
	"context"
	"time"
)

// Guest is a loaded module, ready to run its handlers. It is safe for
// concurrent use: every Run gets memory that no other attempt has written.
type Guest interface {
	// Digest is the SHA-256 of the module as it was given, in hex.
	Digest() string
	// Describe is what the module said of itself when it was loaded.
	Describe() Description
	// Run runs one attempt to its end. It always returns an Outcome and never
	// panics; when ctx ends first, the guest is stopped at its next tick or
	// host call and the Outcome is Stopped with the context's cause.
	Run(ctx context.Context, a Attempt, calls Calls) Outcome
}

// Attempt is what one Run of a Guest starts from.
type Attempt struct {
	Handler string // a name of Description.Handlers
	Input   []byte // JSON; not written to
	Meta    Meta
	Now     time.Time // the run's clock at its start: the instant of its first claim
	Seed    uint64    // of the run's random generator; the same for every attempt of a run
}

// OutcomeKind says how an attempt ended.
type OutcomeKind int

const (
	// Done: the handler returned; Output is its result.
	Done OutcomeKind = iota
	// Failed: the handler reported Failure.
	Failed
	// Crashed: the guest trapped, exited, broke the ABI or the host failed;
	// Failure says so, with one of the codes of this package.
	Crashed
	// Stopped: a Calls method or the context ended it; Err is that error.
	Stopped
)

// String is the kind's name in lower case.
func (k OutcomeKind) String() string {
	switch k {
	case Done:
		return "done"
	case Failed:
		return "failed"
	case Crashed:
		return "crashed"
	case Stopped:
		return "stopped"
	}
	return "unknown"
}

// Outcome is how one attempt ended.
type Outcome struct {
	Kind    OutcomeKind
	Output  []byte  // Done
	Failure Failure // Failed, Crashed
	Err     error   // Stopped; Crashed: the cause, for logs
	Usage   Usage
}

// Usage is what an attempt used.
type Usage struct {
	CPU          time.Duration // time inside the guest, without its host calls
	MemoryBytes  uint64        // size of linear memory at its end
	StdioBytes   int64         // written to stdout and stderr, dropped bytes included
	StdioDropped int64         // of those, beyond MaxStdio
}
