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
	if err := m.enter(ctx, abi.FuncSleep); err != nil {
		return time.Time{}, err
	}
	if m.open != nil {
		return time.Time{}, outsideOnly(abi.FuncSleep)
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

// WaitEvent implements abi.Timers.
func (m *Memory) WaitEvent(ctx context.Context, name, topic string, timeout time.Duration) ([]byte, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %q %q %v", abi.FuncWaitEvent, name, topic, timeout)
	if err := m.unsupported(abi.FeatureWaitEvent); err != nil {
		return nil, time.Time{}, err
	}
	if err := m.enter(ctx, abi.FuncWaitEvent); err != nil {
		return nil, time.Time{}, err
	}
	if m.open != nil {
		return nil, time.Time{}, outsideOnly(abi.FuncWaitEvent)
	}
	r, err := m.reach(abi.FuncWaitEvent, name)
	if err != nil {
		return nil, time.Time{}, err
	}
	if r.Status == "" {
		// An event of the same instant counts: the wait was asked for first.
		r.Status, r.Topic, r.Wait, r.Wake, r.At = Waiting, topic, timeout, m.clock.Add(timeout), m.clock
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
	return nil, time.Time{}, m.lose(&Suspended{Name: name, For: abi.FuncWaitEvent, Wake: r.Wake})
}

// match ends a wait whose event has come or whose time is over. An event is
// given to one wait only.
func (m *Memory) match(r *Record) {
	for i, e := range m.events {
		at := m.cfg.Start.Add(e.After)
		if e.Topic != r.Topic || at.Before(r.At) || at.After(m.clock) || at.After(r.Wake) {
			continue
		}
		r.Status, r.Output, r.At = Completed, e.Payload, at
		m.events = append(m.events[:i:i], m.events[i+1:]...)
		return
	}
	if !m.clock.Before(r.Wake) {
		r.Status, r.At = Failed, r.Wake
	}
}

// due is when the run that waits for s can go on: at its wake, or earlier if an
// event comes.
func (m *Memory) due(s *Suspended) time.Time {
	at := s.Wake
	if s.For != abi.FuncWaitEvent {
		return at
	}
	for _, r := range m.records {
		if r.Name != s.Name {
			continue
		}
		for _, e := range m.events {
			if t := m.cfg.Start.Add(e.After); e.Topic == r.Topic && !t.Before(r.At) && t.Before(at) {
				at = t
			}
		}
	}
	return at
}
