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
	m.sent = append(m.sent, sent...)
	return nil, output, nil
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
func (m *Memory) Publish(ctx context.Context, topic string, payload []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %q %s", abi.FuncPublish, topic, payload)
	if err := m.unsupported(abi.FeaturePublish); err != nil {
		return err
	}
	if err := m.enter(ctx, abi.FuncPublish); err != nil {
		return err
	}
	if err := wire.JSON(abi.FuncPublish, "the payload", payload, abi.MaxInput); err != nil {
		return m.answer(err)
	}
	_, _, err := m.send(abi.FuncPublish, topic, func() ([]byte, []Sent) {
		return nil, []Sent{{Topic: topic, Payload: bytes.Clone(payload)}}
	})
	return err
}

// Invoke implements abi.Emitter. The child runs while its parent is suspended,
// in no time.
func (m *Memory) Invoke(ctx context.Context, p abi.EnqueueParams) ([]byte, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %s", abi.FuncInvoke, wire.AppendEnqueue(nil, p))
	if err := m.unsupported(abi.FeatureInvoke); err != nil {
		return nil, time.Time{}, err
	}
	if err := m.enter(ctx, abi.FuncInvoke); err != nil {
		return nil, time.Time{}, err
	}
	if m.open != nil {
		return nil, time.Time{}, outsideOnly(abi.FuncInvoke)
	}
	if err := m.known(p); err != nil {
		return nil, time.Time{}, err
	}
	key := abi.FuncInvoke + ":" + p.Job
	m.sends[key]++
	name := key + ":" + strconv.Itoa(m.sends[key])
	r, err := m.reach(abi.FuncInvoke, name)
	if err != nil {
		return nil, time.Time{}, err
	}
	switch r.Status {
	case Completed:
		return r.Output, r.At, nil
	case Failed:
		return nil, r.At, &abi.Refusal{Code: abi.CodeFailed, Failure: r.Failure}
	}
	if r.Status == "" {
		m.nextID++
		p.Input = bytes.Clone(p.Input)
		r.Status, r.Child, r.Wake = Waiting, p, m.clock
		m.sent = append(m.sent, Sent{Run: p, ID: "child-" + strconv.Itoa(m.nextID)})
	}
	return nil, time.Time{}, m.lose(&Suspended{Name: name, For: abi.FuncInvoke, Wake: r.Wake})
}

// finishChild settles the child that s waits for. It runs user code, so the
// lock is not held.
func (m *Memory) finishChild(s *Suspended) {
	m.mu.Lock()
	var r *Record
	var child abi.EnqueueParams
	for _, c := range m.records {
		if c.Name == s.Name && c.Status == Waiting {
			r, child = c, c.Child
		}
	}
	m.mu.Unlock()
	if r == nil {
		return
	}
	output, failure := []byte("null"), (*abi.Failure)(nil)
	if m.cfg.Invoke != nil {
		output, failure = m.cfg.Invoke(child)
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
