package queue

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Event asks for something to be published.
type Event struct {
	Topic string
	// Key says what it is about, as an order's number; it may be empty.
	Key     string
	Payload []byte // JSON; empty is null
	// ID is a canonical lower-case UUID. An event of an id that was published
	// before publishes nothing. Empty: one is made.
	ID string
	// Keep is how long waits that begin later may find it, and it is listed; 0 is
	// job.DefaultEventKeep. At most MaxDelay.
	Keep time.Duration
	By   string // records who publishes; it confers nothing
}

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
	if _, err := wire.Name(abi.FuncPublish, []byte(e.Topic)); err != nil {
		return store.EventParams{}, invalid("the topic %q is none: it has 1 to %d bytes of UTF-8, without control characters", clip(e.Topic, 64), abi.MaxName)
	}
	if _, err := wire.Key(abi.FuncPublish, []byte(e.Key)); err != nil {
		return store.EventParams{}, invalid("the key %q is none: it has at most %d bytes of UTF-8, without control characters", clip(e.Key, 64), abi.MaxName)
	}
	if len(e.Payload) == 0 {
		e.Payload = []byte("null")
	}
	if err := wire.CheckJSON(e.Payload, abi.MaxInput); err != nil {
		return store.EventParams{}, invalid("the payload for %q is refused: %v", e.Topic, err)
	}
	if e.Keep == 0 {
		e.Keep = job.DefaultEventKeep
	}
	if e.Keep < time.Millisecond || e.Keep > MaxDelay {
		return store.EventParams{}, invalid("an event cannot be kept for %v; 1ms to ten years it can", e.Keep)
	}
	if len(e.By) > job.MaxTenant || !utf8.ValidString(e.By) || strings.ContainsRune(e.By, 0) {
		return store.EventParams{}, invalid("who publishes is no text of at most %d bytes", job.MaxTenant)
	}
	id, err := mintOrCheck(e.ID)
	if err != nil {
		return store.EventParams{}, err
	}
	return store.EventParams{ID: id, Topic: e.Topic, Key: e.Key, Payload: e.Payload, Keep: e.Keep, By: e.By}, nil
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

// PendingEvent reports whether a wait would be ended by an event that has come.
func (q *Queue) PendingEvent(ctx context.Context, p store.WaitParams) (bool, error) {
	return q.store.PendingEvent(ctx, p)
}
