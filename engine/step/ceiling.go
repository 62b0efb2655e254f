package step

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// ceiling ends the attempt when a step takes too long. One timer serves all
// steps of an attempt.
type ceiling struct {
	cancel context.CancelCauseFunc

	mu    sync.Mutex // the guest's goroutine against the timer's
	timer *time.Timer
	name  string // of the step being timed; "" is none
	limit time.Duration
	until time.Time
}

// start times the step name; a limit of 0 does not.
func (c *ceiling) start(name string, limit time.Duration) {
	if limit <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name, c.limit, c.until = name, limit, time.Now().Add(limit)
	if c.timer == nil {
		c.timer = time.AfterFunc(limit, c.fire)
		return
	}
	c.timer.Reset(limit)
}

// stop ends the timing. A timer that has fired already finds no step.
func (c *ceiling) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name = ""
	if c.timer != nil {
		c.timer.Stop()
	}
}

// fire is called by the timer, perhaps for a step that ended meanwhile.
func (c *ceiling) fire() {
	c.mu.Lock()
	name, limit := c.name, c.limit
	due := name != "" && !time.Now().Before(c.until)
	c.mu.Unlock()
	if due {
		c.cancel(&abi.Error{
			Code:    job.CodeStepTimeout,
			Message: fmt.Sprintf("step %q took longer than %v", name, limit),
			Fix:     "raise step_timeout of the job, or do less in one step",
		})
	}
}
