package sim_test

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// listed reads the events that have not expired, in their order.
func (b *book) listed() []job.Event {
	list, err := b.w.truth.ListEvents(context.Background(), store.ListEventsParams{Topic: topic, Limit: 1000})
	if err != nil {
		b.wrong("the events cannot be read: %v", err)
	}
	slices.Reverse(list)
	return list
}

// lastEvent is where the topic ends.
func (b *book) lastEvent() int64 {
	if n := len(b.events); n > 0 {
		return b.events[n-1].Seq
	}
	return 0
}

// published notes the events that an operation has published, which are those of a
// batch and no others, and looks at every run that is parked for one.
func (b *book) published(op string, landed []store.EventParams) {
	before := b.lastEvent()
	b.mu.Lock()
	for _, e := range b.listed() {
		if _, known := b.eventAt(e.Seq); known {
			continue
		}
		switch first, again := b.eventOf(string(e.Payload)); {
		case e.Seq <= before:
			b.wrong("%s made event %d visible after event %d", op, e.Seq, before)
		case again && first.ExpiresAt.After(b.w.now()):
			b.wrong("%s published %s as event %d, which is event %d", op, e.Payload, e.Seq, first.Seq)
		case !slices.ContainsFunc(landed, func(p store.EventParams) bool { return p.ID == e.ID && bytes.Equal(p.Payload, e.Payload) }):
			b.wrong("%s published %s, which nobody asked it for", op, e.Payload)
		}
		if !e.PublishedAt.Equal(b.w.now()) {
			b.wrong("%s stamped %s with %s, at %s", op, e.Payload, e.PublishedAt, b.w.now())
		}
		b.events, b.born[e.ID] = append(b.events, e), b.looks
	}
	b.mu.Unlock()
	for _, p := range landed {
		i := slices.IndexFunc(b.events, func(e job.Event) bool { return e.ID == p.ID })
		if i < 0 {
			b.wrong("%s lost the event %s", op, p.Payload)
			continue
		}
		if keep := b.events[i].ExpiresAt.Sub(b.events[i].PublishedAt); keep != max(p.Keep.Truncate(time.Millisecond), time.Millisecond) {
			b.wrong("%s keeps the event %s for %v, and not for %v", op, p.Payload, keep, p.Keep)
		}
		if e := b.events[i]; e.Key != p.Key || e.Tenant != p.Tenant || !bytes.Equal(e.Payload, p.Payload) {
			b.wrong("%s published %s for %q of %q as %s for %q of %q", op, p.Payload, p.Key, p.Tenant, e.Payload, e.Key, e.Tenant)
		}
	}
	if b.lastEvent() == before {
		return
	}
	for _, run := range b.listening() {
		b.listens(op, run, before)
	}
}

func (b *book) eventAt(seq int64) (job.Event, bool) {
	i, found := slices.BinarySearchFunc(b.events, seq, func(e job.Event, seq int64) int { return int(e.Seq - seq) })
	if !found {
		return job.Event{}, false
	}
	return b.events[i], true
}

func (b *book) eventOf(payload string) (job.Event, bool) {
	for _, e := range slices.Backward(b.events) {
		if string(e.Payload) == payload {
			return e, true
		}
	}
	return job.Event{}, false
}

// kept checks that the events are there which have not expired.
func (b *book) kept(op string) {
	list := b.listed()
	for _, e := range b.events {
		if e.ExpiresAt.After(b.w.now()) && !slices.ContainsFunc(list, func(x job.Event) bool { return x.Seq == e.Seq }) {
			b.wrong("%s lost event %d, which is to be kept until %s", op, e.Seq, e.ExpiresAt)
		}
	}
}

// listening are the runs of which a wait is open.
func (b *book) listening() (out []string) {
	for run, waits := range b.waiting {
		for _, rec := range waits {
			if rec.Status == job.StepWaiting {
				out = append(out, run)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// listens checks the waits of a run after an operation before which its topic ended
// at before: a first wait begins where the topic ends and every other one where that
// before it ended, whatever became of it; it takes the next of its events from
// there, and times out for want of one; and it is not open when there is one.
func (b *book) listens(op, run string, before int64) {
	r, is := b.runs[run]
	if !is {
		delete(b.waiting, run)
		return
	}
	steps, err := b.w.truth.ListSteps(context.Background(), run)
	if err != nil {
		b.wrong("the history of %s cannot be read: %v", b.label(run), err)
	}
	old, now, places := b.waiting[run], map[string]job.Step{}, map[string]int64{}
	for _, rec := range steps {
		if rec.Kind != job.KindWait {
			continue
		}
		now[rec.Name] = rec
		was := old[rec.Name]
		from, again := places[rec.EventKey]
		places[rec.EventKey] = rec.Place
		name := b.label(run) + "/" + rec.Name
		switch {
		case was.Status == job.StepWaiting:
			from = was.Place
		case was.Name != "":
			if was.Status != rec.Status || was.Place != rec.Place || !bytes.Equal(was.Output, rec.Output) {
				b.wrong("%s changed the wait %s from %s with event %d to %s with event %d", op, name, was.Status, was.Place, rec.Status, rec.Place)
			}
			continue
		case !again && rec.Status == job.StepWaiting:
			// What else the batch published may be before or after it, and the topic may
			// have ended with events that are gone.
			if from = rec.Place; from > b.lastEvent() || slices.ContainsFunc(b.events, func(e job.Event) bool {
				return e.Seq > from && e.Seq <= before && e.ExpiresAt.After(b.w.now())
			}) {
				b.wrong("%s had the wait %s begin at event %d, and the topic ended at %d, and at %d after it", op, name, rec.Place, before, b.lastEvent())
			}
		case !again:
			from = b.lastEvent()
		}
		until := rec.WakeAt
		if was.Status == job.StepWaiting {
			until = was.WakeAt
		}
		next := b.nextEvent(&r, rec.EventKey, from, until)
		switch {
		case rec.Status == job.StepWaiting && rec.Place != from:
			b.wrong("%s had the wait %s go on at event %d, and it was at %d", op, name, rec.Place, from)
		case r.State == job.Suspended && rec.Status == job.StepWaiting && next.Seq != 0:
			b.wrong("%s left the wait %s open at event %d, though event %d is its", op, name, from, next.Seq)
		case rec.Status == job.StepTimedOut && (next.Seq != 0 || rec.Place != from):
			b.wrong("%s had the wait %s time out at event %d, to go on at %d, though event %d is its", op, name, from, rec.Place, next.Seq)
		case rec.Status == job.StepTimedOut && until.After(b.w.now()):
			b.wrong("%s had the wait %s time out before %s", op, name, until)
		case rec.Status == job.StepCompleted && (next.Seq != rec.Place || !bytes.Equal(rec.Output, next.Payload)):
			b.wrong("%s was given event %d with %s after event %d by %s, and the next of its was %d with %s", name, rec.Place, rec.Output, from, op, next.Seq, next.Payload)
		}
	}
	b.mu.Lock()
	b.waiting[run] = now
	b.mu.Unlock()
}

// nextEvent is the first one past a place that a run's wait takes which lasts until
// then, or none.
func (b *book) nextEvent(r *job.Run, key string, from int64, until time.Time) job.Event {
	for _, e := range b.events {
		mine := (key == "" || e.Key == key) && (r.Tenant == "" || e.Tenant == "" || e.Tenant == r.Tenant)
		if mine && e.Seq > from && !e.PublishedAt.After(until) && e.ExpiresAt.After(b.w.now()) {
			return e
		}
	}
	return job.Event{}
}

// heard checks what a handler was given for a wait: what is recorded, of an event
// that comes after the one before.
func (b *book) heard(p *process, run, name, payload string, last int64) int64 {
	if p.dead.Load() {
		return last
	}
	b.mu.Lock()
	rec, is := b.waiting[run][name]
	e, known := b.eventOf(payload)
	b.mu.Unlock()
	switch {
	case !known:
		b.wrong("%s was given %s for %s, which was never published", b.label(run), payload, name)
	case is && rec.Status == job.StepCompleted && string(rec.Output) != payload:
		b.wrong("%s was given event %s for %s, of which %s is recorded", b.label(run), payload, name, rec.Output)
	case e.Seq <= last:
		b.wrong("%s was given event %d after event %d", b.label(run), e.Seq, last)
	}
	return e.Seq
}
