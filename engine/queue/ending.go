package queue

import (
	"log/slog"
	"strconv"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// byEnding is who enqueued a run that an end did.
const byEnding = "on_settled"

// Follow answers the runs that are to be enqueued by the write that ends r for
// good: one of the job that r's names as its on_settled, or none. It has r's
// tenant, and a key for this end of r, so that one that is made twice is one run.
// outcome is of r's last attempt, failure why it failed, if it did.
func (q *Queue) Follow(r *job.Run, outcome job.Outcome, to job.State, failure *job.Failure, output []byte) ([]store.EnqueueParams, error) {
	m := q.manifest()
	ended := m.Jobs[r.Job]
	if ended == nil || ended.OnSettled == "" || !to.Terminal() || to == job.Cancelled {
		return nil, nil
	}
	j := m.Jobs[ended.OnSettled]
	if j == nil {
		return nil, nil // a manifest that was not loaded from a file
	}
	e := job.Ending{Run: r.ID, Job: r.Job, Tenant: r.Tenant, Outcome: outcome, State: to, Attempts: r.Attempt}
	if !outcome.Counted() {
		e.Attempts = max(e.Attempts-1, 0)
	}
	if to == job.Done {
		e.Output = output
	} else if failure != nil {
		e.Code = failure.Code
	} else {
		e.Code = r.Error.Code // which the end leaves as it is
	}
	input, err := e.Told()
	if err != nil {
		return nil, err
	}
	id, err := mintOrCheck("")
	if err != nil {
		return nil, err
	}
	gate, err := gateFor(j, input, id)
	if err != nil {
		// The manifest checked it for every form of an ending. A run that tells is
		// worth more than its limit, and the end of the other must not wait for it.
		q.log.Warn("jobs.on-settled.no-limit", slog.String("run", r.ID), slog.String("job", j.Name), slog.Any("error", err))
	}
	return []store.EnqueueParams{{
		ID: id, Job: j.Name, Queue: j.Queue, Tenant: r.Tenant, Key: "settled:" + r.ID + ":" + strconv.FormatInt(r.Claims, 10), Gate: gate, Input: input,
		Priority: j.Priority, MaxAttempts: max(j.Retry.Attempts, 1),
		Parent: r.ID, EnqueuedBy: byEnding, Traceparent: r.Traceparent,
	}}, nil
}
