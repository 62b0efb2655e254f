package store

import (
	"context"
	"time"
)

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
