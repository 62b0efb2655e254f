package guest

import (
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// Sleep returns once d has passed since the run first got here. While it
// sleeps the run holds no memory, no slot and no connection, so days are as
// cheap as seconds. A name used again becomes "name#2", as with Step.
//
// It panics, and so fails the run, if the host refuses: inside a step, or for
// more than ten years.
func (c *Ctx) Sleep(name string, d time.Duration) {
	if n := c.h.Sleep(c.unique(name), wire.Millis(d)); n < 0 {
		panic(c.refused(abi.FuncSleep, n))
	}
}

// SleepUntil returns once t is reached, as Sleep does; if t has passed when the
// run first gets here, at once or nearly so.
func (c *Ctx) SleepUntil(name string, t time.Time) {
	// Rounded up, so that no sleep ends early.
	if n := c.h.SleepUntil(c.unique(name), t.Add(time.Millisecond-1).UnixMilli()); n < 0 {
		panic(c.refused(abi.FuncSleepUntil, n))
	}
}
