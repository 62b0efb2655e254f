package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/store"
)

// RunBounds tests that the counts of Stats stop where they should. The databases
// that open answers stop at the LowBounds: few rows are enough then.
func RunBounds(t *testing.T, open Factory) {
	b := LowBounds()
	for _, c := range []struct {
		name                string
		ready, due, delayed int // runs of each kind
		tenants             int
		want                store.QueueStats
		missed              bool // the oldest is in a lane that is not looked at
	}{
		{name: "below", ready: 3, delayed: 2, tenants: 1, want: store.QueueStats{Ready: 3, Delayed: 2}},
		{name: "beyond, in few lanes", ready: 9, delayed: 9, tenants: 3, want: store.QueueStats{Ready: b.Ready, Delayed: b.Timed, ReadyAtLeast: true, TimedAtLeast: true}},
		{name: "beyond, in many lanes", ready: 20, tenants: 10, want: store.QueueStats{Ready: b.Ready, ReadyAtLeast: true}, missed: true},
		{name: "what is due is counted first", ready: 4, due: 2, delayed: 9, tenants: 1, want: store.QueueStats{Ready: b.Ready, Delayed: b.Timed - 2, ReadyAtLeast: true, TimedAtLeast: true}},
		{name: "all that is due is counted", due: 2, delayed: 9, tenants: 1, want: store.QueueStats{Ready: 2, Delayed: b.Timed - 2, TimedAtLeast: true}},
		{name: "more is due than is counted", due: 9, tenants: 1, want: store.QueueStats{Ready: b.Timed, ReadyAtLeast: true, TimedAtLeast: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t, open)
			var oldest time.Time
			add := func(p store.EnqueueParams) time.Time {
				p.Queue = "q"
				return e.get(e.add(p)).RunAt
			}
			for range c.due {
				if at := add(store.EnqueueParams{Delay: time.Second}); oldest.IsZero() {
					oldest = at
				}
			}
			for range c.delayed {
				add(store.EnqueueParams{Delay: time.Hour})
			}
			e.db.Advance(2 * time.Second)
			// The last tenant has the oldest run.
			for i := range c.ready {
				at := add(store.EnqueueParams{Tenant: fmt.Sprint(i % c.tenants), RunAt: e.now().Add(-time.Duration(1+i%c.tenants) * time.Minute)})
				if oldest.IsZero() || at.Before(oldest) {
					oldest = at
				}
			}
			other := e.get(e.add(store.EnqueueParams{Queue: "r"})) // with bounds of its own
			st := e.stats()
			if len(st.Queues) != 2 || st.Queues[1].Ready != 1 || !st.Queues[1].OldestDue.Equal(other.RunAt) {
				t.Fatalf("%+v", st.Queues)
			}
			got := st.Queues[0]
			if due := got.OldestDue; due.IsZero() || due.After(oldest) != c.missed {
				t.Errorf("the oldest due is of %v, and there is one of %v", due, oldest)
			}
			c.want.Queue, c.want.OldestDue = "q", got.OldestDue
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("counts (-want +got):\n%s", d)
			}
		})
	}
	t.Run("events", func(t *testing.T) {
		e := newEnv(t, open)
		for i := range 6 {
			if st := e.stats(); st.Events != int64(min(i, int(b.Events))) || st.OldestEvent.IsZero() != (i == 0) {
				t.Errorf("of %d events %d are counted, the oldest of %v", i, st.Events, st.OldestEvent)
			}
			e.publish(store.EventParams{})
		}
	})
}

// LowBounds are what RunBounds expects a database to stop at.
func LowBounds() store.StatsBounds { return store.StatsBounds{Ready: 5, Timed: 4, Lanes: 3, Events: 4} }
