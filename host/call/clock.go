package call

import (
	"math"
	"time"
)

// tickOfClock is how far a guest's clock moves each time it is read outside a
// step: enough that two readings differ.
const tickOfClock = int64(time.Microsecond)

// bootTime is the clock of a module that is brought up: the same for every
// boot, so that images are the same, and before any attempt's.
var bootTime = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// clock is a guest's time in Unix nanoseconds.
type clock struct {
	virtual int64 // outside steps
	ahead   int64 // inside a step: how far the guest's time is ahead of the real one
	real    bool  // inside a step
}

func newClock(at time.Time) clock {
	if at.Before(bootTime) {
		at = bootTime
	}
	return clock{virtual: at.UnixNano()}
}

// now reads the clock.
func (c *clock) now() int64 {
	if c.real {
		return time.Now().UnixNano() + c.ahead
	}
	c.virtual = addSaturated(c.virtual, tickOfClock)
	return c.virtual
}

// advance moves the clock by d outside a step; it never moves back.
func (c *clock) advance(d time.Duration) {
	c.virtual = addSaturated(c.virtual, int64(max(d, 0)))
}

// observe sets the clock to an instant that a method of abi.Calls answered.
// The zero time, and one before what the guest has seen, change nothing.
func (c *clock) observe(at time.Time) {
	if !at.IsZero() {
		c.virtual = max(c.virtual, at.UnixNano())
	}
}

// enterStep makes the clock real, but not earlier than what the guest has seen.
func (c *clock) enterStep() {
	c.real = true
	c.ahead = max(0, c.virtual-time.Now().UnixNano())
}

// leaveStep makes it the run's again. What the guest saw inside the step does
// not count: no later attempt will see it.
func (c *clock) leaveStep(at time.Time) {
	c.real = false
	c.observe(at)
}

func addSaturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
