package instance

import (
	"fmt"
	"time"
)

// Mode is how an instance gets back to its image.
type Mode int

const (
	// Auto is the first of Pagemap, Compare and Copy that this system can do.
	Auto Mode = iota
	// Pagemap maps the image privately and reads from /proc/self/pagemap which
	// pages were written. Linux only.
	Pagemap
	// Compare maps the image privately and compares every page with it. For a
	// Linux whose /proc is hidden.
	Compare
	// Copy keeps the image and each memory on the Go heap and compares them.
	// It works everywhere and costs an image per instance.
	Copy
	// Fresh boots a new instance for every attempt. It is what a module gets
	// that a reset cannot restore, whatever the configuration says.
	Fresh
)

// String is the mode's name in lower case.
func (m Mode) String() string {
	switch m {
	case Auto:
		return "auto"
	case Pagemap:
		return "pagemap"
	case Compare:
		return "compare"
	case Copy:
		return "copy"
	case Fresh:
		return "fresh"
	}
	return "unknown"
}

// Config configures a Pool. The zero value is a sound default.
type Config struct {
	// Mode forces one way of resetting; Auto picks the best. A mode that this
	// system cannot do is an error of New.
	Mode Mode
	// MaxIdleBytes bounds what idle instances keep, over all templates; beyond
	// it the longest idle are closed. Default 1 GiB; negative keeps none.
	// Instances in use are not counted: their number is their caller's choice.
	MaxIdleBytes int64
	// MaxDirtyPages is how many written pages are copied back one by one;
	// beyond it the whole memory is dropped, which is cheaper and gives the
	// pages back. Default 1024 (4 MiB of 4 KiB pages).
	MaxDirtyPages int
	// TrimAfter is how long an instance is idle before Trim takes its private
	// pages and native stacks from it. Default 10 s.
	TrimAfter time.Duration
	// CloseAfter is how long an instance is idle before Trim closes it.
	// Default 1 min.
	CloseAfter time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Mode < Auto || c.Mode > Fresh {
		return c, fmt.Errorf("instance: unknown mode %d", c.Mode)
	}
	if c.MaxIdleBytes == 0 {
		c.MaxIdleBytes = 1 << 30
	}
	if c.MaxDirtyPages <= 0 {
		c.MaxDirtyPages = 1024
	}
	if c.TrimAfter <= 0 {
		c.TrimAfter = 10 * time.Second
	}
	if c.CloseAfter <= 0 {
		c.CloseAfter = time.Minute
	}
	best := bestMode()
	switch {
	case c.Mode == Auto:
		c.Mode = best
	case c.Mode < best: // the modes are ordered by what they need of the system
		return c, fmt.Errorf("instance: this system cannot reset by %s (it can by %s)", c.Mode, best)
	}
	return c, nil
}
