package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// enqueueTries is how often a batch looks again for the holder of a key that
// ended between its insert's refusal and the lookup.
const enqueueTries = 8

// Enqueue implements store.Enqueuer. What is new goes in with one round trip;
// entries that meet a duplicate take a second transaction to be answered.
func (s *Store) Enqueue(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	b, err := newEntries(batch)
	if err != nil {
		return nil, err
	}
	fast := s.enqueueNew
	switch {
	case b.copyable():
		fast = s.copyNew
	case s.handable(b):
		fast = s.enqueueFor
	}
	left, err := fast(ctx, b)
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		try := 0
		err := s.inTx(ctx, func(tx pgx.Tx) error {
			try++
			b.clear(left)
			if err := s.enqueueIn(ctx, tx, b, left, enqueueModeOf(try)); err != nil {
				return err
			}
			return s.notes.in(ctx, tx, b.queues(left))
		})
		if err != nil {
			if len(left) < len(batch) {
				err = errors.Join(err, store.ErrUnknown) // the others are in
			}
			return nil, err
		}
	}
	s.entered(b)
	return b.results, nil
}

// entered tells this process what a committed batch made due, now or later.
func (s *Store) entered(b *entries) {
	s.hub.Post(slices.Values(b.queues(b.all())))
	for i := range b.results {
		switch r, p := &b.results[i], &b.batch[i]; {
		case r.Deduped:
		case r.State == job.Delayed:
			// A little early is a look too many; late would be a wait too long.
			s.claims.timed(p.Queue, time.Time{})
		case !s.claims.byLane():
		case p.RunAt.IsZero():
			s.claims.lowered(p.Queue, p.Tenant, p.Priority)
		default:
			s.claims.lower(p.Queue, p.Tenant, p.Priority, millis(p.RunAt))
		}
	}
}

// EnqueueTx inserts a batch in the caller's transaction: what it answers is
// there when that commits, and its workers are woken then. It leaves the
// transaction usable unless it fails.
func (s *Store) EnqueueTx(ctx context.Context, tx pgx.Tx, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	b, err := newEntries(batch)
	if err != nil {
		return nil, err
	}
	if err := s.enqueueIn(ctx, tx, b, b.all(), enqueueAgain); err != nil {
		return nil, s.translate(err, false)
	}
	// Not throttled: this may commit much later than it is asked for.
	if queues := b.queues(b.all()); len(queues) > 0 && !s.notes.mute {
		if err := s.runAll(ctx, tx, s.notes.call(queues)); err != nil {
			return nil, s.translate(err, false)
		}
	}
	return b.results, nil
}

// enqueueNew inserts in one round trip what is new, and returns the entries that
// it leaves to be answered.
func (s *Store) enqueueNew(ctx context.Context, b *entries) (left []int, err error) {
	all := b.all()
	index := make(map[uuid]int, len(b.ids))
	for i, id := range b.ids {
		if _, ok := index[id]; !ok {
			index[id] = i
		}
	}
	notify := s.notes.pick(b.batch)
	err = s.write(ctx, func(q queryer) error {
		b.clear(all)
		calls := b.insert(all, false, func(id uuid, state job.State, soon bool) { b.enter(index[id], state, soon) })
		if !b.new {
			calls = append(calls, b.check(all))
		}
		if len(notify) > 0 {
			calls = append(calls, s.notes.call(notify))
		}
		return s.runAll(ctx, q, calls...)
	})
	if sqlState(err) == stateRefused {
		b.clear(all)
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range b.results {
		if b.results[i].ID == "" {
			left = append(left, i)
		}
	}
	return left, nil
}

// stateRefused is the SQLSTATE of the function refuse.
const stateRefused = "RN001"

// enqueueMode is how a transaction deals with a key whose holder ends between the
// refusal of an insert and the look for who refused it.
type enqueueMode int

const (
	// enqueueLook has the transaction begin anew. Within one, keys are taken in
	// their order and only once: two that went on to take what has become free
	// would come to wait for each other.
	enqueueLook enqueueMode = iota
	// enqueueLock keeps holders from ending until the transaction does.
	enqueueLock
	// enqueueAgain looks again in the same transaction, which is the caller's and
	// may last: nothing must wait for it that need not.
	enqueueAgain
)

// enqueueModeOf is that of the nth try of a transaction, from 1.
func enqueueModeOf(try int) enqueueMode {
	if try > 2 {
		return enqueueLock
	}
	return enqueueLook
}

// enqueueIn inserts some entries in a transaction, and answers each. A taken id
// goes before a taken key: the same id again is the same run again, whatever its
// state.
func (s *Store) enqueueIn(ctx context.Context, tx pgx.Tx, b *entries, left []int, mode enqueueMode) error {
	if b.tangled && len(left) > 1 {
		for _, i := range left {
			if err := s.enqueueIn(ctx, tx, b, []int{i}, mode); err != nil {
				return err
			}
		}
		return nil
	}
	for range enqueueTries {
		known, err := s.states(ctx, tx, b, left)
		if err != nil {
			return err
		}
		var fresh, again []int // again names an id that an entry before it names
		index := map[uuid]int{}
		for _, i := range left {
			if state, ok := known[b.ids[i]]; ok {
				b.results[i] = store.EnqueueResult{ID: b.batch[i].ID, Deduped: true, State: state}
			} else if _, ok := index[b.ids[i]]; ok {
				again = append(again, i)
			} else {
				index[b.ids[i]] = i
				fresh = append(fresh, i)
			}
		}
		left = nil
		if b.byID {
			if fresh, err = s.idHolders(ctx, tx, b, fresh); err != nil {
				return err
			}
		}
		if len(fresh) > 0 {
			if left, err = s.enqueueFresh(ctx, tx, b, fresh, index, mode); err != nil {
				return err
			}
			if len(left) > 0 && mode != enqueueAgain {
				return fmt.Errorf("the holder of a key ended meanwhile: %w", errAgain)
			}
		}
		if left = append(left, again...); len(left) == 0 {
			return nil
		}
	}
	// The index refuses what no run stands for. No id is made up for it.
	p := b.batch[left[0]]
	return &abi.Error{
		Code:    job.CodeDatabaseCorrupt,
		Message: "run " + p.ID + " was refused as a duplicate of no run: an index of waiting or live_keys is damaged",
		Fix:     "stop the runner and run REINDEX SCHEMA " + pgx.Identifier{s.cfg.Schema}.Sanitize() + " on the database",
	}
}

// enqueueFresh inserts entries whose ids no run had at the last look, and
// returns those that it could not answer. If one of them was on its way from one
// table to the next at that look, the transaction fails and is run again.
func (s *Store) enqueueFresh(ctx context.Context, tx pgx.Tx, b *entries, fresh []int, index map[uuid]int, mode enqueueMode) (left []int, err error) {
	var deduped []int
	if mode == enqueueLock && b.keyed {
		if fresh, deduped, err = s.takeKeys(ctx, tx, b, fresh); err != nil {
			return nil, err
		}
	}
	if len(fresh) > 0 {
		calls := b.insert(fresh, mode == enqueueLock, func(id uuid, state job.State, soon bool) { b.enter(index[id], state, soon) })
		if err := s.runAll(ctx, tx, append(calls, b.check(fresh))...); err != nil {
			if sqlState(err) == stateRefused {
				err = errors.Join(err, errAgain)
			}
			return nil, err
		}
	}
	for _, i := range fresh {
		if b.results[i].ID == "" {
			left = append(left, i)
		}
	}
	if mode == enqueueLock {
		// Whoever took an id meanwhile is met by another try.
		if len(left) > 0 {
			return left, nil
		}
		left = deduped
	}
	if len(left) == 0 || !b.keyed {
		return left, nil
	}
	return s.holders(ctx, tx, b, left)
}
