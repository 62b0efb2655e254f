package step

import (
	"context"
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/store"
)

// subject is what events are about.
type subject struct{ topic, key string }

// WaitEvent answers the payload of the event that the wait is for, or refuses
// with a timeout; until then its error is a *Suspend. Both ends are records: the
// event's is made by whoever publishes it while the run is parked, the timeout's
// here, by the store's clock. A run's next wait for the same subject goes on from
// where the record says.
func (a *Attempt) WaitEvent(ctx context.Context, p abi.WaitParams) ([]byte, time.Time, error) {
	if a.open.name != "" {
		return nil, time.Time{}, outsideOnly("a wait", "wait", a.open.name)
	}
	if p.Timeout > abi.MaxSleep {
		return nil, time.Time{}, &abi.Refusal{Code: abi.CodeLimit}
	}
	if err := a.enter(ctx, abi.FuncWaitEvent, p.Name); err != nil {
		return nil, time.Time{}, err
	}
	r, err := a.visit(p.Name, job.KindWait)
	if err != nil {
		return nil, time.Time{}, err
	}
	st := store.StepParams{
		Ref: a.p.Ref, Name: p.Name, Kind: job.KindWait, Status: job.StepWaiting, Sleep: max(p.Timeout, 0), Module: a.p.Module,
		Wait: &store.WaitParams{Topic: p.Topic, Key: p.Key},
	}
	if r == nil {
		return a.beginWait(ctx, p, st)
	}
	if r.Topic != p.Topic || r.EventKey != p.Key {
		return nil, time.Time{}, a.diverged(fmt.Sprintf("%q was recorded as a wait for %s and is asked for as one for %s",
			p.Name, quoted(r.Topic, r.EventKey), quoted(p.Topic, p.Key)))
	}
	if r.Status != job.StepWaiting {
		a.p.Metrics.Step(metrics.StepReplayed)
		a.cameThrough("wait", r, r.FinishedAt)
		return a.endWait(p, r.Status, r.Output, r.Place, r.FinishedAt)
	}
	// Back without an event: its time is over, unless someone made the run due.
	st.WakeAt, st.Wait.After = r.WakeAt, r.Place
	return a.saveWait(ctx, p, st, r)
}

func quoted(topic, key string) string {
	if key == "" {
		return fmt.Sprintf("%q", topic)
	}
	return fmt.Sprintf("%q with the key %q", topic, key)
}

// beginWait parks the run, unless there is something to answer at once.
func (a *Attempt) beginWait(ctx context.Context, p abi.WaitParams, st store.StepParams) ([]byte, time.Time, error) {
	place, again := a.places[subject{p.Topic, p.Key}]
	st.Wait.After, st.Wait.FromNow = place, !again || p.Timeout < 0
	pending := false
	if again && p.Timeout > 0 {
		var err error
		if pending, err = a.p.Queue.PendingEvent(ctx, a.p.Run.Tenant, *st.Wait); err != nil {
			pending = false // the park looks again
		}
	}
	if pending || p.Timeout <= 0 {
		return a.saveWait(ctx, p, st, nil)
	}
	return nil, time.Time{}, &Suspend{Record: &st}
}

// saveWait records a wait and answers it if it is over; otherwise the run parks. r is
// the record that it has already, nil for a new one.
func (a *Attempt) saveWait(ctx context.Context, p abi.WaitParams, st store.StepParams, r *record) ([]byte, time.Time, error) {
	res, err := a.p.Queue.SaveStep(ctx, st)
	if err != nil {
		return nil, time.Time{}, err
	}
	if !res.Landed {
		return nil, time.Time{}, a.lost()
	}
	if r == nil {
		a.count++
	}
	if res.Status == job.StepWaiting {
		// What is kept is the place, so that parking begins where this did.
		st.Wait.After, st.Wait.FromNow = res.Place, false
		return nil, time.Time{}, &Suspend{Record: &st}
	}
	a.recorded += weight(p.Name, res.Output, nil)
	a.p.Metrics.Step(metrics.StepRun)
	if r != nil {
		a.cameThrough("wait", r, res.At)
	}
	return a.endWait(p, res.Status, res.Output, res.Place, res.At)
}

// endWait answers a wait that is over.
func (a *Attempt) endWait(p abi.WaitParams, status job.StepStatus, payload []byte, place int64, at time.Time) ([]byte, time.Time, error) {
	if a.places == nil {
		a.places = make(map[subject]int64)
	}
	a.places[subject{p.Topic, p.Key}] = place
	if status == job.StepTimedOut {
		return nil, a.at(at), &abi.Refusal{Code: abi.CodeTimeout}
	}
	return payload, a.at(at), nil
}
