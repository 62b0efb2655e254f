package sim_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jobrunner/runner/engine"
)

// What runs fight for: idempotency keys, keys of limits, shares of a queue.
var (
	keys  = []string{"a", "b", "c"}
	lanes = []string{"1", "2", "3"}
	orgs  = []string{"ann", "bob", "cat"}
)

// enqueue has a client ask for runs, publish, or stage rows.
func (w *world) enqueue() {
	w.asked++
	n := w.asked
	label := func(i int) string { return fmt.Sprintf("r%d.%d", n, i) }
	var reqs []engine.Request
	several := func(most int, of ...string) {
		for i := range 1 + w.rng.IntN(most) {
			in := input{Label: label(i)}
			r := engine.Request{Job: of[w.rng.IntN(len(of))]}
			switch r.Job {
			case "lane", "strict":
				in.Lane = lanes[w.rng.IntN(len(lanes))]
			case "crowd", "subscriber":
				in.Org = orgs[w.rng.IntN(len(orgs))]
			}
			r.Input = in.encoded()
			reqs = append(reqs, r)
		}
	}
	kind := w.rng.IntN(18)
	if w.profile.ask > 0 {
		kind = w.profile.ask
	}
	switch kind {
	case 0, 1:
		several(1, "parent")
	case 2:
		several(5, "parent")
	case 3:
		several(1, "keyed")
		reqs[0].Key = keys[w.rng.IntN(len(keys))]
		if w.rng.IntN(2) == 0 {
			reqs[0].OnConflict = engine.Fail
		}
	case 4:
		several(1, "parent")
		reqs[0].Delay = w.between(0, time.Minute)
		if w.rng.IntN(3) == 0 {
			reqs[0].Delay, reqs[0].RunAt = 0, w.client.now().Add(reqs[0].Delay)
		}
	case 5:
		several(1, "child")
		prio := w.rng.IntN(5) - 2
		reqs[0].Priority, reqs[0].MaxAttempts = &prio, 1+w.rng.IntN(3)
	case 6:
		several(5, "narrow")
	case 7:
		several(2, "listener", "subscriber")
	case 8:
		several(2, "saga")
	case 9:
		several(2, "family")
	case 10:
		several(6, "lane", "lane", "strict")
	case 11:
		several(6, "metered")
	case 12:
		several(6, "drip")
	case 13:
		several(8, "crowd")
	case 16:
		several(6, "eased", "hurried", "moved")
	case 17:
		several(2, "nest")
	case 14:
		w.publish(1 + w.rng.IntN(3))
		return
	case 15:
		w.stage(1 + w.rng.IntN(5))
		return
	}
	c := w.clients[w.client]
	w.do(fmt.Sprintf("client enqueues %d of %s: %s", len(reqs), reqs[0].Job, label(0)), func(ctx context.Context) {
		res, err := c.EnqueueMany(ctx, reqs)
		if err != nil {
			return
		}
		w.book.mu.Lock()
		defer w.book.mu.Unlock()
		for i := range res {
			w.book.accepted[res[i].ID] = true
		}
	})
}

// publish has a client publish events, at a time or one after the other.
func (w *world) publish(n int) {
	for range n {
		w.asked++
		e := engine.Event{Topic: topic, Key: subjects[w.rng.IntN(len(subjects))], Payload: []byte(fmt.Sprint(w.asked))}
		if w.rng.IntN(3) == 0 {
			e.Tenant = orgs[w.rng.IntN(len(orgs))]
		}
		if w.rng.IntN(4) == 0 {
			e.Keep = w.between(time.Second, time.Minute)
		}
		w.do("client publishes "+string(e.Payload), func(ctx context.Context) { _, _ = w.clients[w.client].Publish(ctx, e) })
	}
}
