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

// SleepUntil sleeps until t. What is left until then is found out in a step,
// named after the sleep, since the run's own clock may lag behind.
func (c *Ctx) SleepUntil(name string, t time.Time) error {
	left, err := Step(c, name+" (clock)", func() (time.Duration, error) {
		return t.Sub(c.Now()), nil
	})
	if err == nil {
		c.Sleep(name, left)
	}
	return err
}
