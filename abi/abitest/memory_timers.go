package abitest

import (
	"context"
	"time"

	"github.com/jobrunner/runner/abi"
)

func outsideOnly(fn string) error {
	return &abi.Refusal{Code: abi.CodeOutsideStepOnly, Failure: abi.Failure{
		Kind: abi.FailTerminal, Message: fn + " is called inside a step", Fix: "call it between steps",
	}}
}

func (m *Memory) unsupported(f abi.Features) error {
	if m.cfg.Unsupported&f != 0 {
		return &abi.Refusal{Code: abi.CodeUnsupported}
	}
	return nil
}

// Sleep implements abi.Timers.
func (m *Memory) Sleep(ctx context.Context, name string, d time.Duration) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %q %v", abi.FuncSleep, name, d)
	return m.sleep(ctx, abi.FuncSleep, name, d)
}

// SleepUntil implements abi.Timers.
func (m *Memory) SleepUntil(ctx context.Context, name string, t time.Time) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %q %s", abi.FuncSleepUntil, name, t.UTC().Format(time.RFC3339Nano))
	return m.sleep(ctx, abi.FuncSleepUntil, name, max(t.Sub(m.clock), 0))
}

// sleep is both of them: fn is who asks, and d counts the first time.
func (m *Memory) sleep(ctx context.Context, fn, name string, d time.Duration) (time.Time, error) {
	if err := m.enter(ctx, fn); err != nil {
		return time.Time{}, err
	}
	if m.open != nil {
		return time.Time{}, outsideOnly(fn)
	}
	r, err := m.reach(abi.FuncSleep, name)
	if err != nil {
		return time.Time{}, err
	}
	if r.Status == "" {
		r.Status, r.Wait, r.Wake = Waiting, d, m.clock.Add(d)
	}
	if r.Status == Waiting && m.clock.Before(r.Wake) {
		return time.Time{}, m.lose(&Suspended{Name: name, For: abi.FuncSleep, Wake: r.Wake})
	}
	if r.Status == Waiting {
		r.Status, r.At = Completed, r.Wake
	}
	return r.At, nil
}

// place is a topic and key that a run waits for.
type place struct{ topic, key string }

// WaitEvent implements abi.Timers.
func (m *Memory) WaitEvent(ctx context.Context, p abi.WaitParams) ([]byte, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %q %q%s %v", abi.FuncWaitEvent, p.Name, p.Topic, saidKey(p.Key), p.Timeout)
	if err := m.unsupported(abi.FeatureWaitEvent); err != nil {
		return nil, time.Time{}, err
	}
	if err := m.enter(ctx, abi.FuncWaitEvent); err != nil {
		return nil, time.Time{}, err
	}
	if m.open != nil {
		return nil, time.Time{}, outsideOnly(abi.FuncWaitEvent)
	}
	r, err := m.reach(abi.FuncWaitEvent, p.Name)
	if err != nil {
		return nil, time.Time{}, err
	}
	if r.Status == "" {
		r.Status, r.Topic, r.Key, r.Wait, r.Wake, r.At = Waiting, p.Topic, p.Key, p.Timeout, m.clock.Add(p.Timeout), m.clock
		next, again := m.places[place{p.Topic, p.Key}]
		if !again {
			// An event of the same instant counts: the wait was asked for first.
			next = m.firstEvent(func(at time.Time) bool { return !at.Before(m.clock) })
		}
		r.next = next
	}
	if r.Status == Waiting && p.Timeout < 0 {
		r.Status, r.Wait, r.Wake = Failed, 0, m.clock
		m.setPlace(r, m.firstEvent(func(at time.Time) bool { return !at.Before(m.clock) }))
	}
	if r.Status == Waiting {
		m.match(r)
	}
	switch r.Status {
	case Completed:
		return r.Output, r.At, nil
	case Failed:
		return nil, r.At, &abi.Refusal{Code: abi.CodeTimeout}
	}
	return nil, time.Time{}, m.lose(&Suspended{Name: p.Name, For: abi.FuncWaitEvent, Wake: r.Wake})
}

// firstEvent is the index of the first event whose instant is wanted.
func (m *Memory) firstEvent(wanted func(time.Time) bool) int {
	for i, e := range m.events {
		if wanted(m.cfg.Start.Add(e.After)) {
			return i
		}
	}
	return len(m.events)
}

// next is the first event that the wait may take, and when it is published.
func (m *Memory) next(r *Record) (i int, at time.Time, ok bool) {
	for i := r.next; i < len(m.events); i++ {
		e := m.events[i]
		at := m.cfg.Start.Add(e.After)
		if e.Topic == r.Topic && (r.Key == "" || e.Key == r.Key) && !at.After(r.Wake) {
			return i, at, true
		}
	}
	return 0, time.Time{}, false
}

// setPlace says where the next wait for the same goes on.
func (m *Memory) setPlace(r *Record, next int) {
	if m.places == nil {
		m.places = make(map[place]int)
	}
	m.places[place{r.Topic, r.Key}] = next
}

// match ends a wait whose event has come or whose time is over.
func (m *Memory) match(r *Record) {
	if i, at, ok := m.next(r); ok && !at.After(m.clock) {
		r.Status, r.Output, r.At = Completed, m.events[i].Payload, at
		if at.Before(r.Wake.Add(-r.Wait)) {
			r.At = r.Wake.Add(-r.Wait) // it had come before the wait began
		}
		m.setPlace(r, i+1)
		return
	}
	if !m.clock.Before(r.Wake) {
		r.Status, r.At = Failed, r.Wake
		m.setPlace(r, m.firstEvent(func(at time.Time) bool { return at.After(r.Wake) }))
	}
}

// due is when the run that waits for s can go on: at its wake, or earlier if an
// event comes.
func (m *Memory) due(s *Suspended) time.Time {
	if s.For != abi.FuncWaitEvent {
		return s.Wake
	}
	for _, r := range m.records {
		if r.Name == s.Name {
			if _, at, ok := m.next(r); ok && at.Before(s.Wake) {
				return at
			}
		}
	}
	return s.Wake
}
