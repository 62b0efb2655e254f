package queue

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Event asks for something to be published.
type Event = store.PublishParams

// Published is what became of an Event.
type Published struct {
	ID      string
	Seq     int64 // its place in the order of its topic
	At      time.Time
	Woken   int // runs that waited for it
	Deduped bool
}

// Publish publishes an event, and wakes the runs that wait for it in the same
// commit. It outlasts a store that is away for a few seconds.
//
// Errors: X_INVALID, X_ID_INVALID, and the store's. One that is store.ErrUnknown
// may have published it: a caller who named an ID may repeat it.
func (q *Queue) Publish(ctx context.Context, e Event) (Published, error) {
	p, err := PrepareEvent(e)
	if err != nil {
		return Published{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, enqueuePatience)
	defer cancel()
	res, err := q.events.do(ctx, p)
	if err != nil {
		return Published{}, err
	}
	// An id that was just made can only be this very event, written twice.
	return Published{ID: p.ID, Seq: res.Seq, At: res.At, Woken: res.Woken, Deduped: res.Deduped && e.ID != ""}, nil
}

// PrepareEvent checks an event and turns it into what a store publishes.
// Errors: X_INVALID, X_ID_INVALID.
func PrepareEvent(e Event) (store.EventParams, error) {
	p, err := e.Event()
	if err != nil {
		return store.EventParams{}, err
	}
	p.ID, err = mintOrCheck(e.ID)
	return p, err
}

// Events lists what was published and has not expired, newest first.
// Errors: X_JOB_PAGE_INVALID.
func (q *Queue) Events(ctx context.Context, p store.ListEventsParams) ([]job.Event, error) {
	return q.store.ListEvents(ctx, p)
}

// InvokeDepth answers how many runs wait for this one, each for the next, counted
// to most. It outlasts a store that is away for as long as ctx lives.
func (q *Queue) InvokeDepth(ctx context.Context, runID string, most int) (int, error) {
	backoff := loop.Backoff{Floor: retryFloor, Ceiling: retryCeiling}
	for {
		n, err := q.store.InvokeDepth(ctx, runID, most)
		if err == nil || !transient(err) || !loop.Sleep(ctx, backoff.Next()) {
			return n, err
		}
	}
}

// PendingEvent reports whether a wait of a tenant's run would be ended by an event
// that has come.
func (q *Queue) PendingEvent(ctx context.Context, tenant string, p store.WaitParams) (bool, error) {
	return q.store.PendingEvent(ctx, tenant, p)
}
