package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// settleMore settles a batch of which some entries are more than the end of an
// attempt: they enqueue or publish, wait for an event, invoke, leave children, or are
// followed by runs.
func (s *Store) settleMore(ctx context.Context, batch []store.SettleParams, out []store.SettleResult) error {
	var m *settlingMore
	try := 0
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		try++
		clear(out)
		m = &settlingMore{s: s, tx: tx, mode: enqueueModeOf(try), batch: slices.Clone(batch), out: out, landed: make([]bool, len(batch))}
		return m.run(ctx)
	})
	if err != nil {
		return err
	}
	for _, b := range m.entered {
		s.entered(b)
	}
	for _, g := range m.settled {
		g.landed()
	}
	s.woke(m.woken)
	return nil
}

// settlingMore is one try of such a batch, in a transaction.
type settlingMore struct {
	s       *Store
	tx      pgx.Tx
	mode    enqueueMode
	batch   []store.SettleParams // its own copy
	out     []store.SettleResult
	landed  []bool // the entry is what ends its attempt
	settled []*settling
	entered []*entries
	woken   []resting
}

func (m *settlingMore) run(ctx context.Context) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	refs := make([]job.Ref, len(m.batch))
	for i := range m.batch {
		refs[i] = m.batch[i].Ref
	}
	held, err := m.s.hold(ctx, m.tx, refs)
	if err != nil {
		return err
	}
	if err := m.settle(ctx, held); err != nil {
		return err
	}
	for _, f := range []func(context.Context) error{m.follow, m.publish, m.restWaits, m.restInvokers, m.leave} {
		if err := f(ctx); err != nil {
			return err
		}
	}
	queues := append(queuesOf(m.entered), queuesOfResting(m.woken)...)
	for _, g := range m.settled {
		queues = append(queues, g.wake...)
	}
	return m.s.notes.in(ctx, m.tx, queues)
}

// lock takes what must be locked before any run: topics, and the rows of those
// who invoked.
func (m *settlingMore) lock(ctx context.Context) error {
	var topics, open []string
	var events []store.EventParams
	var f family
	for i := range m.batch {
		p := &m.batch[i]
		if st := p.Step; st != nil {
			events = append(events, st.Publish...)
			if st.Wait != nil {
				topics = append(topics, st.Wait.Topic)
			}
		}
		switch {
		case p.Invoke != nil:
			open = append(open, p.Ref.RunID)
		case p.To.Terminal():
			f.add(p.Ref.RunID, p.Parent)
			if p.Invoked {
				f.parents = append(f.parents, p.Ref.RunID)
			}
		}
	}
	var calls []call
	if len(topics)+len(events) > 0 {
		calls = append(calls, lockTopics(topics, events))
	}
	if open != nil {
		slices.Sort(open)
		calls = append(calls, call{st: qOpenInvokers, args: []any{uuidParams(slices.Compact(open))}})
	}
	if f.parents != nil {
		calls = append(calls, f.lock())
	}
	if calls == nil {
		return nil
	}
	return m.s.runAll(ctx, m.tx, calls...)
}

// settle ends the attempts. What they enqueue, and the children that they start,
// go in before the records that name them, and after the ends before them, whose
// keys they may take.
func (m *settlingMore) settle(ctx context.Context, held []bool) error {
	var ready []int // to be settled
	flush := func() error {
		for _, round := range settleRounds(m.batch, ready) {
			g := m.s.newSettling(m.batch, round, m.out)
			if calls := g.calls(); len(calls) > 0 {
				if err := m.s.runAll(ctx, m.tx, calls...); err != nil {
					return err
				}
			}
			m.settled = append(m.settled, g)
		}
		ready = nil
		return nil
	}
	ended := map[string]bool{} // by an entry before
	for i := range m.batch {
		p := &m.batch[i]
		m.landed[i] = held[i] && !ended[p.Ref.RunID]
		if p.Invoke != nil {
			p.Delay = store.InvokeHorizon
		}
		if m.landed[i] {
			ended[p.Ref.RunID] = true
			if err := m.enter(ctx, p, flush); err != nil {
				return err
			}
		}
		ready = append(ready, i)
	}
	return flush()
}

// enter inserts what an entry brings with it.
func (m *settlingMore) enter(ctx context.Context, p *store.SettleParams, flush func() error) error {
	switch st := p.Step; {
	case p.Invoke != nil:
		if err := flush(); err != nil {
			return err
		}
		b, err := m.s.startChildren(ctx, m.tx, p, m.mode)
		if err != nil {
			return err
		}
		m.entered = append(m.entered, b)
	case st != nil && (len(st.Enqueue) > 0 || st.OutputEnqueued):
		if err := flush(); err != nil {
			return err
		}
		b, output, err := m.s.enqueueOf(ctx, m.tx, st, m.mode)
		if err != nil {
			return err
		}
		m.entered = append(m.entered, b)
		with := *st
		with.Output = output
		p.Step = &with
	}
	return nil
}

// enqueueOf inserts what a step enqueues, and returns it with the step's output.
func (s *Store) enqueueOf(ctx context.Context, tx pgx.Tx, st *store.StepParams, mode enqueueMode) (b *entries, output []byte, err error) {
	if b, err = newEntries(st.Enqueue); err != nil {
		return nil, nil, err
	}
	if len(st.Enqueue) > 0 {
		if err := s.enqueueIn(ctx, tx, b, b.all(), mode); err != nil {
			return nil, nil, err
		}
	}
	if !st.OutputEnqueued {
		return b, st.Output, nil
	}
	output, err = st.Named(b.results)
	return b, output, err
}

// follow inserts the runs that commit with the ends, after all of these.
func (m *settlingMore) follow(ctx context.Context) error {
	var runs []store.EnqueueParams
	for i, p := range m.batch {
		if m.landed[i] {
			runs = append(runs, p.Enqueue...)
		}
	}
	b, err := m.s.follow(ctx, m.tx, runs, m.mode)
	if b != nil {
		m.entered = append(m.entered, b)
	}
	return err
}

// publish publishes what the attempts did, after they have ended: one of them may
// be parked for it.
func (m *settlingMore) publish(ctx context.Context) error {
	var events []store.EventParams
	for i, p := range m.batch {
		if m.landed[i] && p.Step != nil {
			events = append(events, p.Step.Publish...)
		}
	}
	if events == nil {
		return nil
	}
	_, woken, err := m.s.publishIn(ctx, m.tx, events)
	m.woken = append(m.woken, woken...)
	return err
}

// restWaits parks the runs that wait for an event, or leaves them ready.
func (m *settlingMore) restWaits(ctx context.Context) error {
	var which []int
	var w waits
	for i, p := range m.batch {
		if m.landed[i] && p.Step != nil && p.Step.Wait != nil {
			which = append(which, i)
			w.add(p.Ref.RunID, "", p.Step)
		}
	}
	if which == nil {
		return nil
	}
	return m.s.runAll(ctx, m.tx, w.place(), w.end(func(int, store.StepResult) {}),
		w.rest(func(i int, r resting) { m.rests(which[i], r) }))
}

// restInvokers does so for those that wait for children.
func (m *settlingMore) restInvokers(ctx context.Context) error {
	var which []int
	var ids, late []string
	var most []int32
	var timed []bool
	for i, p := range m.batch {
		if m.landed[i] && p.Invoke != nil {
			which, ids, most = append(which, i), append(ids, p.Ref.RunID), append(most, int32(p.Invoke.Most))
			if timed = append(timed, p.Invoke.Timed); p.Invoke.Timed {
				late = append(late, p.Ref.RunID)
			}
		}
	}
	if which == nil {
		return nil
	}
	if late != nil {
		woken, err := m.s.expireChildren(ctx, m.tx, late)
		if err != nil {
			return err
		}
		m.woken = append(m.woken, woken...)
	}
	return m.s.run(ctx, m.tx, restInvokers(ids, most, timed, func(i int, r resting) { m.rests(which[i], r) }))
}

// rests notes how an entry's run is left.
func (m *settlingMore) rests(i int, r resting) {
	m.out[i].RunAt = r.due
	if r.ready {
		m.woken = append(m.woken, r)
	}
}

// leave cancels the children of runs that have ended.
func (m *settlingMore) leave(ctx context.Context) error {
	var parents []string
	for i, p := range m.batch {
		if m.landed[i] && p.Invoked && p.To.Terminal() {
			parents = append(parents, p.Ref.RunID)
		}
	}
	woken, err := m.s.leaveChildren(ctx, m.tx, parents, false)
	m.woken = append(m.woken, woken...)
	return err
}
