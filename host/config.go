package host

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/jobrunner/runner/host/capability"
	"github.com/jobrunner/runner/host/instance"
)

// Config configures a Host. The zero value is a sound default; New copies it.
type Config struct {
	// CacheDir keeps compiled modules between starts: a Go module then loads in
	// 0.1 s instead of 2. It holds executable code, so nobody else may be able
	// to write to it; it is made with mode 0700. Empty keeps none.
	CacheDir string
	// CPUSlots is how many guests run at the same time. Default GOMAXPROCS;
	// more only makes everything wait longer. Guests that wait in a call do not
	// count.
	CPUSlots int
	// MemoryLimit bounds a guest's linear memory, in bytes, where LoadParams
	// has no limit. Default 128 MiB. A Go guest needs 4 MiB to start.
	MemoryLimit uint64
	// InitTimeout bounds how long a module may take to start, warm up and
	// describe itself. Default 10 s.
	InitTimeout time.Duration
	// Quantum is the fuel of a guest between two visits to the host, about one
	// for each loop iteration. Default call.Quantum; tests lower it.
	Quantum uint32
	// Pool bounds what idle instances keep and how they are reset.
	Pool instance.Config
	// TrimEvery is how often idle instances are looked at. Default 5 s;
	// negative never, for a caller that calls Trim itself.
	TrimEvery time.Duration
	// Outside is what guests' requests and secrets go through.
	Outside capability.Config
	// Logger gets what an operator should know. Default slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.CPUSlots < 0 {
		return c, fmt.Errorf("host: CPUSlots is %d", c.CPUSlots)
	}
	if c.CPUSlots == 0 {
		c.CPUSlots = runtime.GOMAXPROCS(0)
	}
	if c.MemoryLimit == 0 {
		c.MemoryLimit = 128 << 20
	}
	if c.InitTimeout <= 0 {
		c.InitTimeout = 10 * time.Second
	}
	if c.TrimEvery == 0 {
		c.TrimEvery = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}

// Log keys.
const (
	logModule = "module"
	logReason = "reason"
	logMode   = "mode"
	logError  = "error"
	logRun    = "run"
	logJob    = "job"
)
