package queue

import (
	"context"
	"time"

	"github.com/jobrunner/runner/abi"
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

// PublishEach publishes events that do not stand for each other, as EnqueueEach
// enqueues: a bad one is refused by its verdict and holds nobody up. It answers
// verdicts in order, of all events or, with an error, of those before the first
// whose outcome is open. Of a verdict, Refused and Deduped mean something.
//
// Errors: the store's.
func (q *Queue) PublishEach(ctx context.Context, events []Event) ([]Verdict, error) {
	verdicts := make([]Verdict, len(events))
	var good []store.EventParams
	var at []int // of good, in events
	for i, e := range events {
		p, err := PrepareEvent(e)
		if abi.CodeOf(err) == job.CodeInternal {
			return verdicts[:0], err
		}
		if err != nil {
			verdicts[i].Refused = err
			continue
		}
		good, at = append(good, p), append(at, i)
	}
	w := walk[store.EventParams, store.EventResult]{
		entries: good,
		share:   publishShare,
		write:   q.store.Publish,
		answer:  func(i int, r store.EventResult) { verdicts[at[i]].Deduped = r.Deduped },
		refuse:  func(i int, err error) { verdicts[at[i]].Refused = err },
	}
	open, err := w.run(ctx)
	if err != nil {
		verdicts = verdicts[:at[open]]
	}
	return verdicts, err
}

// publishBytes bounds the payloads of one write, but for its last.
const publishBytes = 4 << 20

func publishShare(left []store.EventParams) (n int) {
	for bytes := 0; n < len(left) && n < enqueueChunk && bytes < publishBytes; n++ {
		bytes += len(left[n].Payload)
	}
	return n
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
