package engine_test

import (
	"encoding/json"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// all is every run of the database.
func (c *chaos) all() []job.Run {
	runs, err := c.db.List(c.Context(), store.ListParams{Limit: 1000})
	if err != nil {
		c.Fatal(err)
	}
	return runs
}

func (c *chaos) over() bool {
	for _, r := range c.all() {
		if r.State.Live() {
			return false
		}
	}
	return true
}

func (c *chaos) check() {
	children := map[string]int{}
	for _, r := range c.all() {
		if r.Parent != "" {
			children[r.Parent]++
		}
		if r.State.Live() {
			c.Errorf("run %s (%s) never ended: %s, due %s", r.ID, r.Job, r.State, r.RunAt)
		}
		if r.Attempt > r.MaxAttempts {
			c.Errorf("run %s is at attempt %d of %d", r.ID, r.Attempt, r.MaxAttempts)
		}
		if r.Worker != "" {
			c.Errorf("run %s is %s and held by %s", r.ID, r.State, r.Worker)
		}
		c.timeline(r)
	}
	done := 0
	for _, id := range c.runs {
		r, err := c.db.Get(c.Context(), id)
		if err != nil {
			c.Fatal(err)
		}
		c.ending(r, children[id])
		if r.State == job.Done {
			done++
		}
		if n := c.once[id]; n > 1 {
			c.Errorf("the once step of %s ran %d times", id, n)
		}
	}
	c.Logf("%d of %d parents done, %d engines", done, len(c.runs), len(c.engines))
	if done == 0 {
		c.Error("no run was ever done: the schedule proves nothing")
	}
}

// ending checks how a parent ended.
func (c *chaos) ending(r job.Run, children int) {
	switch r.State {
	case job.Done:
		want, _ := json.Marshal([]string{
			c.recorded[r.ID+" a"], c.recorded[r.ID+" b"], c.recorded[r.ID+" send"], c.recorded[r.ID+" enqueue"],
		})
		if string(r.Output) != string(want) {
			c.Errorf("run %s is done with %s, recorded %s", r.ID, r.Output, want)
		}
		if children != 2 {
			c.Errorf("run %s is done with %d children", r.ID, children)
		}
	case job.Dead:
		if !buried[r.Error.Code] {
			c.Errorf("run %s is dead with %+v", r.ID, r.Error)
		}
	case job.Cancelled:
		if !c.touched[r.ID] {
			c.Errorf("run %s is cancelled, by nobody", r.ID)
		}
	default:
		c.Errorf("run %s is %s", r.ID, r.State)
	}
	if children > 2 {
		c.Errorf("run %s has %d children", r.ID, children)
	}
}

// timeline checks that each claim was settled at most once, in order.
func (c *chaos) timeline(r job.Run) {
	records, err := c.db.Attempts(c.Context(), r.ID)
	if err != nil {
		c.Fatal(err)
	}
	last := int64(0)
	for _, a := range records {
		if a.Claim <= last || a.Claim > r.Claims {
			c.Errorf("run %s: claim %d after %d of %d in its timeline", r.ID, a.Claim, last, r.Claims)
		}
		last = a.Claim
	}
}
