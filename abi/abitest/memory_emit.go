package abitest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// known refuses a job that cannot be enqueued.
func (m *Memory) known(p abi.EnqueueParams) error {
	if m.cfg.Jobs == nil || slices.Contains(m.cfg.Jobs, p.Job) {
		return nil
	}
	return &abi.Refusal{Code: abi.CodeInvalid, Failure: abi.Failure{
		Kind: abi.FailTerminal, Code: CodeUnknownJob, Message: fmt.Sprintf("there is no job %q", p.Job), Fix: "declare it in the manifest",
	}}
}

// send makes what the guest sends part of the open step, or a record of its own
// named after it and its ordinal. again is that record if it was made earlier.
func (m *Memory) send(fn, what string, produce func() (output []byte, sent []Sent)) (again *Record, output []byte, err error) {
	if m.open != nil {
		output, sent := produce()
		m.staged = append(m.staged, sent...)
		return nil, output, nil
	}
	key := fn + ":" + what
	m.sends[key]++
	r, err := m.reach(fn, key+":"+strconv.Itoa(m.sends[key]))
	if err != nil {
		return nil, nil, err
	}
	if r.Status == Completed {
		return r, r.Output, nil
	}
	output, sent := produce()
	r.Status, r.Output, r.At = Completed, output, m.clock
	m.commit(sent)
	return nil, output, nil
}

// commit makes what was sent seen. Events count for the run's own waits too.
func (m *Memory) commit(sent []Sent) {
	m.sent = append(m.sent, sent...)
	for _, s := range sent {
		if s.Topic == "" {
			continue
		}
		m.deliver(s.Topic, s.Key, s.Payload)
	}
}

// deliver puts an event after those that have come.
func (m *Memory) deliver(topic, key string, payload []byte) {
	now := m.clock.Sub(m.cfg.Start)
	at := slices.IndexFunc(m.events, func(e Event) bool { return e.After > now })
	if at < 0 {
		at = len(m.events)
	}
	m.events = slices.Insert(m.events, at, Event{Topic: topic, Key: key, Payload: payload, After: now})
}

// Enqueue implements abi.Emitter.
func (m *Memory) Enqueue(ctx context.Context, runs []abi.EnqueueParams) ([]abi.EnqueueResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %s", abi.FuncEnqueue, wire.AppendEnqueue(nil, runs...))
	if err := m.enter(ctx, abi.FuncEnqueue); err != nil {
		return nil, err
	}
	for _, p := range runs {
		if err := m.known(p); err != nil {
			return nil, err
		}
	}
	if len(runs) == 0 {
		return nil, nil
	}
	_, output, err := m.send(abi.FuncEnqueue, runs[0].Job, func() ([]byte, []Sent) {
		var sent []Sent
		results := make([]abi.EnqueueResult, len(runs))
		for i, p := range runs {
			if id := m.live(p, sent); id != "" {
				results[i] = abi.EnqueueResult{ID: id, Deduped: true}
				continue
			}
			m.nextID++
			id := "child-" + strconv.Itoa(m.nextID)
			p.Input = bytes.Clone(p.Input)
			sent = append(sent, Sent{Run: p, ID: id})
			results[i] = abi.EnqueueResult{ID: id}
		}
		return wire.AppendEnqueued(nil, results), sent
	})
	if err != nil {
		return nil, err
	}
	return wire.ReadEnqueued(output)
}

// live is the run that holds p's key, or "".
func (m *Memory) live(p abi.EnqueueParams, more []Sent) string {
	if p.Key == "" {
		return ""
	}
	for _, list := range [][]Sent{m.sent, m.staged, more} {
		for _, s := range list {
			if s.Run.Job == p.Job && s.Run.Key == p.Key && s.Run.Tenant == p.Tenant {
				return s.ID
			}
		}
	}
	return ""
}

// Publish implements abi.Emitter.
func (m *Memory) Publish(ctx context.Context, p abi.PublishParams) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %q%s %s", abi.FuncPublish, p.Topic, saidKey(p.Key), p.Payload)
	if err := m.unsupported(abi.FeaturePublish); err != nil {
		return err
	}
	if err := m.enter(ctx, abi.FuncPublish); err != nil {
		return err
	}
	if err := wire.JSON(abi.FuncPublish, "the payload", p.Payload, abi.MaxInput); err != nil {
		return m.answer(err)
	}
	_, _, err := m.send(abi.FuncPublish, p.Topic, func() ([]byte, []Sent) {
		return nil, []Sent{{Topic: p.Topic, Key: p.Key, Payload: bytes.Clone(p.Payload)}}
	})
	return err
}

// saidKey is a key in the transcript; an empty one is left out.
func saidKey(key string) string {
	if key == "" {
		return ""
	}
	return " " + strconv.Quote(key)
}

// Invoke implements abi.Emitter. Children run while their parent is suspended,
// in no time.
func (m *Memory) Invoke(ctx context.Context, runs []abi.EnqueueParams, limit int) ([]abi.InvokeResult, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %s", abi.FuncInvoke, wire.AppendEnqueue(nil, runs...))
	if err := m.unsupported(abi.FeatureInvoke); err != nil {
		return nil, time.Time{}, err
	}
	if err := m.enter(ctx, abi.FuncInvoke); err != nil {
		return nil, time.Time{}, err
	}
	if m.open != nil {
		return nil, time.Time{}, outsideOnly(abi.FuncInvoke)
	}
	for _, p := range runs {
		if err := m.known(p); err != nil {
			return nil, time.Time{}, err
		}
	}
	results := make([]abi.InvokeResult, len(runs))
	var last time.Time
	live, first := 0, ""
	for i, p := range runs {
		if live == limit {
			break
		}
		key := abi.FuncInvoke + ":" + p.Job
		m.sends[key]++
		r, err := m.reach(abi.FuncInvoke, key+":"+strconv.Itoa(m.sends[key]))
		if err != nil {
			return nil, time.Time{}, err
		}
		switch r.Status {
		case Completed:
			results[i].Output = r.Output
		case Failed:
			f := r.Failure
			results[i].Failure = &f
		case "":
			m.nextID++
			p.Input = bytes.Clone(p.Input)
			r.Status, r.Child, r.Wake = Waiting, p, m.clock
			m.commit([]Sent{{Run: p, ID: "child-" + strconv.Itoa(m.nextID)}})
		}
		if r.Status == Waiting {
			if live++; first == "" {
				first = r.Name
			}
		} else if r.At.After(last) {
			last = r.At
		}
	}
	if live > 0 {
		return nil, time.Time{}, m.lose(&Suspended{Name: first, For: abi.FuncInvoke, Wake: m.clock})
	}
	return results, last, nil
}

// finishChildren settles the children that are live. It runs user code, so the
// lock is not held meanwhile.
func (m *Memory) finishChildren() {
	m.mu.Lock()
	var live []*Record
	for _, c := range m.records {
		if c.Kind == abi.FuncInvoke && c.Status == Waiting {
			live = append(live, c)
		}
	}
	m.mu.Unlock()
	for _, r := range live {
		m.finishChild(r)
	}
}

func (m *Memory) finishChild(r *Record) {
	output, failure := []byte("null"), (*abi.Failure)(nil)
	if m.cfg.Invoke != nil {
		output, failure = m.cfg.Invoke(r.Child)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r.At = m.clock
	if failure != nil {
		r.Status, r.Failure = Failed, *failure
		return
	}
	r.Status, r.Output = Completed, output
}
