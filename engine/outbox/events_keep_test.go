package outbox_test

import (
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// An event's id is known for as long as it is kept, and a relay that died may have
// published the row: it is kept for as long as that can take to be found.
func TestAStagedEventIsKeptForAnHourAtLeast(t *testing.T) {
	for keep, want := range map[time.Duration]time.Duration{
		0:                0, // as long as any event
		time.Millisecond: time.Hour,
		time.Hour:        time.Hour,
		2 * time.Hour:    2 * time.Hour,
	} {
		staged := store.Staged{Event: &queue.Event{Topic: "t", Keep: keep}}
		if got := outbox.Published(&staged).Keep; got != want {
			t.Errorf("one that is to be kept for %v is kept for %v, want %v", keep, got, want)
		}
		if staged.Event.Keep != keep {
			t.Error("the row was changed")
		}
	}
}
