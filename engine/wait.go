package engine

import (
	"context"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
)

// Cadence of a Wait whose run is another process's.
const (
	waitFloor   = 50 * time.Millisecond
	waitCeiling = 2 * time.Second
)

// Wait follows a run to its end and returns it. It hears at once of runs that
// this process settles and looks now and then for the others. An error of a
// look ends it, as ctx does. Errors: X_JOB_NOT_FOUND.
func (c *Client) Wait(ctx context.Context, id string) (job.Run, error) {
	backoff := loop.Backoff{Floor: waitFloor, Ceiling: waitCeiling}
	for {
		heard := c.listen(id) // before the look, so that no settle falls between
		r, err := c.queue.Get(ctx, id)
		if err != nil || r.State.Terminal() {
			c.forget(id, heard)
			return r, err
		}
		timer := time.NewTimer(backoff.Next())
		select {
		case <-heard:
		case <-timer.C:
			c.forget(id, heard)
		case <-ctx.Done():
			timer.Stop()
			c.forget(id, heard)
			return r, context.Cause(ctx)
		}
		timer.Stop()
	}
}

func (c *Client) listen(id string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard := make(chan struct{})
	c.waiting[id] = append(c.waiting[id], heard)
	return heard
}

func (c *Client) forget(id string, heard chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.waiting[id], func(w chan struct{}) bool { return w == heard })
	if len(left) == 0 {
		delete(c.waiting, id)
		return
	}
	c.waiting[id] = left
}

// settled wakes those who wait for a run. A worker calls it for each settle.
func (c *Client) settled(id string, to job.State) {
	if !to.Terminal() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return
	}
	for _, heard := range c.waiting[id] {
		close(heard)
	}
	delete(c.waiting, id)
}
