package sqlite

import (
	"log/slog"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// Memory is the Path of a database that lives as long as its Store.
const Memory = ":memory:"

// Config says which database to open and how. The zero values are good
// defaults, Path apart.
type Config struct {
	// Path of the database file, taken literally, or Memory.
	Path string
	// Create makes a missing or empty database; without it one is an error.
	// An existing database of an older schema is never migrated by Open.
	Create bool
	// Clock is the store's time; nil is the system's. Tests pass a virtual one.
	Clock func() time.Time
	// Logger gets what no caller can be told; nil discards.
	Logger *slog.Logger
	// BusyTimeout is how long to wait for another process's write before
	// X_DATABASE_BUSY; 0 is 5 s.
	BusyTimeout time.Duration
	// Readers is the most reads that run at once; 0 is 4. One costs about
	// half a MiB, and is opened when first needed.
	Readers int
	// PollInterval is how often commits of other processes are looked for
	// while anyone listens for wakes; 0 is 100 ms.
	PollInterval time.Duration

	vfs   string // of tests that make files fail
	place *place // nil in memory, and where a file is open for a moment only
}

func (c Config) withDefaults() (Config, error) {
	if c.Path == "" {
		return c, &abi.Error{Code: job.CodeInvalid, Message: "the SQLite database has no path", Fix: "name a file, or " + Memory}
	}
	if c.BusyTimeout < 0 || c.Readers < 0 || c.PollInterval < 0 {
		return c, &abi.Error{Code: job.CodeInvalid, Message: "a negative setting of the SQLite store", Fix: "use 0 for the default"}
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.BusyTimeout == 0 {
		c.BusyTimeout = 5 * time.Second
	}
	if c.Readers == 0 {
		c.Readers = 4
	}
	if c.PollInterval == 0 {
		c.PollInterval = 100 * time.Millisecond
	}
	return c, nil
}

func (c Config) memory() bool { return c.Path == Memory }
