package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// parked is what a suspended run waits for, since a claim of it.
type parked struct {
	topic, key string
	claim      int64
}

// publish adds an event whose place the store has answered: that it comes after all
// others is what the model has to say of it.
func (m *model) publish(p store.EventParams, seq int64) store.EventResult {
	last := int64(0)
	at := -1
	for i, e := range m.events {
		last = max(last, e.Seq)
		if e.ID == p.ID {
			at = i
		}
	}
	if at >= 0 && m.events[at].ExpiresAt.After(m.now) {
		e := m.events[at]
		return store.EventResult{Seq: e.Seq, At: e.PublishedAt, Deduped: true}
	}
	if at >= 0 {
		m.events = slices.Delete(m.events, at, at+1)
	}
	out := store.EventResult{Seq: seq, At: m.now}
	if seq <= last {
		out.Seq = last + 1 // differs from what was answered
	}
	m.events = append(m.events, job.Event{
		Seq: seq, ID: p.ID, Topic: p.Topic, Key: p.Key, Tenant: p.Tenant, Payload: p.Payload, Run: p.Run, By: p.By,
		PublishedAt: m.now, ExpiresAt: m.now.Add(p.Keep),
	})
	for _, r := range m.runs {
		w := r.parked
		if r.State != job.Suspended || w.claim != r.Claims || w.topic != p.Topic || w.key != "" && w.key != p.Key || !meet(r.Tenant, p.Tenant) || r.RunAt.Before(m.now) {
			continue
		}
		for i := range r.steps {
			if st := &r.steps[i]; st.Kind == job.KindWait && st.Status == job.StepWaiting {
				st.Status, st.Output, st.Place, st.FinishedAt = job.StepCompleted, p.Payload, seq, m.now
			}
		}
		r.State, r.RunAt = job.Ready, m.now
		out.Woken++
	}
	return out
}

// meet reports whether a run of one tenant gets events of another.
func meet(run, event string) bool { return run == "" || event == "" || run == event }

// nextEvent is the first event past a place that a wait takes, or nil.
func (m *model) nextEvent(tenant string, w store.WaitParams, place int64, until time.Time) *job.Event {
	for i := range m.events { // in the order of their places
		e := &m.events[i]
		if e.Seq > place && e.Topic == w.Topic && (w.Key == "" || w.Key == e.Key) && meet(tenant, e.Tenant) &&
			!e.PublishedAt.After(until) && e.ExpiresAt.After(m.now) {
			return e
		}
	}
	return nil
}

// wait completes the record of a wait that saveStep would write, and answers it. ok
// is false for one that is over already, which stays.
func (m *model) wait(r *modelRun, p store.StepParams, st *job.Step) (out store.StepResult, ok bool) {
	for _, was := range r.steps {
		if was.Name == p.Name && was.Kind == job.KindWait && (was.Status == job.StepCompleted || was.Status == job.StepTimedOut) {
			return store.StepResult{Landed: true, Status: was.Status, Place: was.Place, Output: was.Output, At: was.FinishedAt}, false
		}
	}
	w := *p.Wait
	place := w.After
	if w.FromNow {
		place = 0
		for _, e := range m.events {
			if e.Topic == w.Topic {
				place = max(place, e.Seq)
			}
		}
	}
	st.Topic, st.EventKey, st.Place, st.WakeAt, st.Status = w.Topic, w.Key, place, m.wakeAt(p), job.StepWaiting
	if e := m.nextEvent(r.Tenant, w, place, st.WakeAt); e != nil {
		st.Status, st.Place, st.Output = job.StepCompleted, e.Seq, e.Payload
	} else if !st.WakeAt.After(m.now) {
		st.Status = job.StepTimedOut
	}
	return store.StepResult{Landed: true, Status: st.Status, Place: st.Place, Output: st.Output, At: m.now}, true
}

func (m *model) purgeEvents() int {
	n := len(m.events)
	m.events = slices.DeleteFunc(m.events, func(e job.Event) bool { return !e.ExpiresAt.After(m.now) })
	return n - len(m.events)
}

// listEvents are those that have not expired, newest first.
func (m *model) listEvents() []job.Event {
	var out []job.Event
	for _, e := range m.events {
		if e.ExpiresAt.After(m.now) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b job.Event) int { return cmp.Compare(b.Seq, a.Seq) })
	return out
}
