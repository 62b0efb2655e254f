package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// ScheduleStatus is a schedule as it is declared, and what is known of it.
type ScheduleStatus struct {
	Name     string
	Declared *manifest.Schedule // nil: the client's manifest has none of that name
	Row      store.Schedule     // Name is "" if no process has led it, and nobody paused it
	// Next is the first occurrence that has not been dealt with; it may be past.
	// Zero if it is not declared.
	Next time.Time
}

// Prepare checks requests and turns them into what a store inserts; see
// queue.Queue.Prepare. It makes a client the queue of a schedule.Config.
func (c *Client) Prepare(requests []Request) ([]store.EnqueueParams, error) {
	return c.queue.Prepare(requests)
}

// Schedules answers the schedules of the client's manifest, and those of which
// only the database knows, by name; and the store's time.
func (c *Client) Schedules(ctx context.Context) ([]ScheduleStatus, time.Time, error) {
	now, err := c.store.Now(ctx)
	if err != nil {
		return nil, now, err
	}
	rows, err := c.store.ListSchedules(ctx)
	if err != nil {
		return nil, now, err
	}
	declared := c.queue.Manifest().Schedules
	var out []ScheduleStatus
	known := map[string]bool{}
	for _, row := range rows {
		known[row.Name] = true
		s := ScheduleStatus{Name: row.Name, Row: row, Declared: declared[row.Name]}
		if s.Declared != nil {
			from := row.Watermark
			if row.Spec != s.Declared.Definition() {
				from = now // it will begin anew
			}
			s.Next = s.Declared.Next(from)
		}
		out = append(out, s)
	}
	for name, d := range declared {
		if !known[name] {
			out = append(out, ScheduleStatus{Name: name, Declared: d, Next: d.Next(now)})
		}
	}
	slices.SortFunc(out, func(a, b ScheduleStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out, now, nil
}

// RunScheduleParams runs a schedule by hand.
type RunScheduleParams struct {
	Name string
	// Occurrence is what its inputs say of the occurrence; zero is the store's now.
	Occurrence time.Time
	EnqueuedBy string // recorded with the runs
}

// RunSchedule enqueues what an occurrence of a schedule would, at once. It is no
// occurrence: the runs have the keys that their jobs give them, so that a live
// run stands for one of the same key, and neither a pause nor a live run of an
// occurrence is in the way. Results are in the order of the declaration.
// Errors: X_SCHEDULE_NOT_FOUND, X_INVALID for an occurrence that none is; as EnqueueMany.
func (c *Client) RunSchedule(ctx context.Context, p RunScheduleParams) ([]Result, error) {
	d := c.queue.Manifest().Schedules[p.Name]
	if d == nil {
		return nil, undeclared(p.Name)
	}
	at := p.Occurrence
	if at.IsZero() {
		now, err := c.store.Now(ctx)
		if err != nil {
			return nil, err
		}
		at = now
	}
	if !store.Within(at).Equal(at) {
		return nil, &abi.Error{
			Code:    job.CodeInvalid,
			Message: fmt.Sprintf("schedule %s has no occurrence at %s", p.Name, at.UTC().Format(time.RFC3339)),
			Fix:     "say one from 1970 on and before 9000, or leave it out for now",
		}
	}
	requests := make([]Request, len(d.Enqueue))
	for i := range d.Enqueue {
		e := &d.Enqueue[i]
		requests[i] = Request{Job: e.Job, Input: e.InputAt(at.In(d.Zone)), EnqueuedBy: p.EnqueuedBy}
	}
	return c.queue.EnqueueMany(ctx, requests)
}

// PauseSchedule has a schedule fire nothing until it is resumed, over deploys and
// restarts; see WithActor. Errors: X_SCHEDULE_NOT_FOUND for one that neither the
// manifest nor the database knows.
func (c *Client) PauseSchedule(ctx context.Context, name string) (store.Schedule, error) {
	if c.queue.Manifest().Schedules[name] == nil {
		rows, err := c.store.ListSchedules(ctx)
		if err != nil {
			return store.Schedule{}, err
		}
		if !slices.ContainsFunc(rows, func(s store.Schedule) bool { return s.Name == name }) {
			return store.Schedule{}, undeclared(name)
		}
	}
	return c.store.PauseSchedule(ctx, store.ScheduleParams{Name: name, By: queue.Actor(ctx)})
}

// ResumeSchedule ends a pause; what was missed meanwhile is the catch-up policy's.
// Errors: X_SCHEDULE_NOT_FOUND for one that neither the manifest nor the database
// knows.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (store.Schedule, error) {
	s, err := c.store.ResumeSchedule(ctx, store.ScheduleParams{Name: name, By: queue.Actor(ctx)})
	if abi.CodeOf(err) == job.CodeScheduleNotFound && c.queue.Manifest().Schedules[name] != nil {
		return store.Schedule{Name: name}, nil // nobody ever paused it, and none has led it yet
	}
	return s, err
}

// ForgetSchedule deletes what is known of a schedule that nothing declares any
// more. Errors: X_SCHEDULE_NOT_FOUND, X_SCHEDULE_LED.
func (c *Client) ForgetSchedule(ctx context.Context, name string) error {
	return c.store.ForgetSchedule(ctx, store.ScheduleParams{Name: name, By: queue.Actor(ctx)})
}

func undeclared(name string) error {
	return &abi.Error{
		Code:    job.CodeScheduleNotFound,
		Message: fmt.Sprintf("no schedule is named %s", job.Quote(name)),
		Fix:     "see `runner schedules ls`, or declare it under [schedules] in jobs.toml",
	}
}
