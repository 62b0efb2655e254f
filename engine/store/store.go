package store

import (
	"context"
	"errors"
	"time"
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
