package storetest

import (
	"fmt"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// What the random history has to do with events. No batch both parks and publishes:
// which of the two came first is the store's.

func (x *random) anEvent() store.EventParams {
	p := x.event(store.EventParams{
		Topic: pick(x, "t", "t", "u"), Key: pick(x, "", "k", "l"), Tenant: pick(x, "", "", "t1", "t2"), Payload: fmt.Appendf(nil, "%d", x.n),
		Keep: pick(x, 5*time.Second, time.Minute, time.Hour), By: pick(x, "", "ann"),
	})
	if len(x.m.events) > 0 && x.odds(6) {
		p.ID = pick(x, x.m.events...).ID
	}
	return p
}

func (x *random) someEvents() (batch []store.EventParams) {
	for range 1 + x.rand.IntN(3) {
		batch = append(batch, x.anEvent())
	}
	return batch
}

func (x *random) publishSome() {
	batch := x.someEvents()
	got, err := x.db.Publish(x.ctx, batch)
	if err != nil {
		x.Fatal(err)
	}
	var want []store.EventResult
	for i := range batch {
		want = append(want, x.m.publish(batch[i], got[i].Seq))
	}
	x.same(want, got)
}

// publishInside publishes with a step, or with the settle that records one.
func (x *random) publishInside() {
	p := store.StepParams{Ref: x.anyRef(), Name: pick(x, "a", "b"), Kind: job.KindStep, Status: job.StepCompleted, Publish: x.someEvents()}
	held := x.m.held(p.Ref)
	if x.odds(2) {
		got, err := x.db.SaveSteps(x.ctx, []store.StepParams{p})
		if err != nil {
			x.Fatal(err)
		}
		x.saved([]store.StepParams{p}, got)
	} else {
		settle := store.SettleParams{Ref: p.Ref, Outcome: job.Retried, To: job.Ready, Step: &p}
		got, err := x.db.Settle(x.ctx, []store.SettleParams{settle})
		if err != nil {
			x.Fatal(err)
		}
		x.settled([]store.SettleParams{settle}, got)
	}
	if held == nil {
		return
	}
	// Their places are not answered: they are what the store says, in this order.
	events := map[string]job.Event{}
	for _, e := range x.listEvents() {
		events[e.ID] = e
	}
	for _, e := range p.Publish {
		x.m.publish(e, events[e.ID].Seq)
	}
}

func (x *random) aWait() store.StepParams {
	w := store.WaitParams{Topic: pick(x, "t", "t", "u"), Key: pick(x, "", "k", "l"), FromNow: x.odds(2)}
	if !w.FromNow && len(x.m.events) > 0 {
		w.After = pick(x, x.m.events...).Seq - int64(x.rand.IntN(2))
	}
	// No time is over at the very moment of an op: the others pass whole seconds.
	return store.StepParams{
		Name: pick(x, "w", "v"), Kind: job.KindWait, Status: job.StepWaiting, Wait: &w, Module: pick(x, "", "m1"),
		Sleep: pick(x, 0, 7*time.Second+3*time.Millisecond, 30*time.Second+3*time.Millisecond, time.Hour),
	}
}

// waitSome records waits without parking.
func (x *random) waitSome() {
	p := x.aWait()
	p.Ref = x.anyRef()
	got, err := x.db.SaveSteps(x.ctx, []store.StepParams{p})
	if err != nil {
		x.Fatal(err)
	}
	x.saved([]store.StepParams{p}, got)
}

func (x *random) parkOne() {
	st := x.aWait()
	p := store.SettleParams{Ref: x.anyRef(), Outcome: job.Slept, To: job.Suspended, Step: &st}
	got, err := x.db.Settle(x.ctx, []store.SettleParams{p})
	if err != nil {
		x.Fatal(err)
	}
	x.settled([]store.SettleParams{p}, got)
}

func (x *random) pendingOne() {
	tenant, w := pick(x, "", "t1", "t2", "t3"), *x.aWait().Wait
	got, err := x.db.PendingEvent(x.ctx, tenant, w)
	if err != nil {
		x.Fatal(err)
	}
	x.same(!w.FromNow && x.m.nextEvent(tenant, w, w.After, x.m.now) != nil, got)
}

func (x *random) purgeEvents() {
	n, err := x.db.PurgeEvents(x.ctx, 10_000)
	if err != nil {
		x.Fatal(err)
	}
	x.same(x.m.purgeEvents(), n)
}

func (x *random) listEvents() []job.Event {
	x.Helper()
	events, err := x.db.ListEvents(x.ctx, store.ListEventsParams{Limit: 1000})
	if err != nil {
		x.Fatal(err)
	}
	return events
}
