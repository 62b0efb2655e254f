package sim_test

import (
	"context"
	"slices"

	"github.com/jobrunner/runner/engine/store"
)

// event is one that was published.
type event struct {
	seq     int64
	key     string
	payload string
}

// published notes the events that an operation has published, which have been
// purged of late at most if they were noted.
func (b *book) published() {
	list, err := b.w.truth.ListEvents(context.Background(), store.ListEventsParams{Topic: topic, Limit: 1000})
	if err != nil {
		b.wrong("the events cannot be read: %v", err)
	}
	slices.Reverse(list)
	b.mu.Lock()
	defer b.mu.Unlock()
	last := int64(0)
	if n := len(b.events); n > 0 {
		last = b.events[n-1].seq
	}
	for _, e := range list {
		if e.Seq > last {
			b.events = append(b.events, event{e.Seq, e.Key, string(e.Payload)})
		}
	}
}

// place is an event's among those that a wait for the key takes, or -1.
func (b *book) place(key, payload string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, e := range b.events {
		switch {
		case key != "" && e.key != key:
		case e.payload == payload:
			return n
		default:
			n++
		}
	}
	return -1
}
