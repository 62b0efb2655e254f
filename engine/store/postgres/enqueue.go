package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// inlineInput is the largest input, in bytes, that lives in its run's row.
// Claim and settle move the row, so a larger one is kept apart, for one more
// insert and lookup.
const inlineInput = 1 << 10

// enqueueTries is how often a batch looks again for the holder of a key that
// ended between its insert's refusal and the lookup.
const enqueueTries = 8

var (
	qEnqueue       = named("enqueue")
	qInputs        = named("insert_inputs")
	qCheckNew      = named("check_new")
	qTakeKeys      = named("take_keys")
	qFindStates    = named("find_states")
	qFindHolders   = named("find_holders")
	qFindIDHolders = named("find_id_holders")
	qFindLive      = named("find_live")
)

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
	if b.copyable() {
		fast = s.copyNew
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
	s.hub.post(b.queues(b.all()))
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
	if queues := b.queues(b.all()); len(queues) > 0 {
		if err := s.runAll(ctx, tx, s.notes.call(queues)); err != nil {
			return nil, s.translate(err, false)
		}
	}
	return b.results, nil
}

// entries is a batch on its way in.
type entries struct {
	batch   []store.EnqueueParams
	ids     []uuid
	keyed   bool // some have a key that is not their own id
	byID    bool // some have a key that is an id: their own, or another
	tangled bool // an entry's key is the id of another entry
	results []store.EnqueueResult
	soon    []bool // inserted, and due within the second
}

// newEntries refuses what could not be stored as the id it is.
func newEntries(batch []store.EnqueueParams) (*entries, error) {
	b := &entries{batch: batch, ids: make([]uuid, len(batch))}
	for i := range batch {
		p := &batch[i]
		var ok bool
		if b.ids[i], ok = parseUUID(p.ID); !ok {
			return nil, &abi.Error{Code: job.CodeIDInvalid, Message: "the id " + p.ID + " is not a lower-case UUID"}
		}
		if _, ok := parseUUID(p.Parent); !ok && p.Parent != "" {
			return nil, &abi.Error{Code: job.CodeIDInvalid, Message: "the parent " + p.Parent + " is not a lower-case UUID"}
		}
		if p.Key == "" {
			continue
		}
		own := p.Key == p.ID
		b.keyed = b.keyed || !own
		if _, isID := parseUUID(p.Key); isID {
			b.byID = true
			b.tangled = b.tangled || !own
		}
	}
	b.tangled = b.tangled && b.tangle()
	b.results = make([]store.EnqueueResult, len(batch))
	b.soon = make([]bool, len(batch))
	return b, nil
}

// tangle reports whether an entry's key is the id of another entry.
func (b *entries) tangle() bool {
	ids := map[string]bool{}
	for i := range b.batch {
		ids[b.batch[i].ID] = true
	}
	for i := range b.batch {
		if p := &b.batch[i]; p.Key != p.ID && ids[p.Key] {
			return true
		}
	}
	return false
}

// storedKey is how an entry's key is kept: NULL for none, "" for its own id.
func storedKey(p *store.EnqueueParams) *string {
	if p.Key != "" && p.Key == p.ID {
		return new(string)
	}
	return encOrNull(p.Key)
}

// inKeys reports whether an entry's key is a row of live_keys.
func inKeys(p *store.EnqueueParams) bool { return p.Key != "" && p.Key != p.ID }

// clear forgets the answers to some entries.
func (b *entries) clear(which []int) {
	for _, i := range which {
		b.results[i], b.soon[i] = store.EnqueueResult{}, false
	}
}

// queues are those of some entries that got work to do within the second.
func (b *entries) queues(which []int) []string {
	var out []string
	for _, i := range which {
		if q := b.batch[i].Queue; b.soon[i] && !slices.Contains(out, q) {
			out = append(out, q)
		}
	}
	return out
}

// picked are the ids of some entries, as an argument.
func (b *entries) picked(which []int) []pgtype.UUID {
	out := make([]pgtype.UUID, len(which))
	for n, i := range which {
		out[n] = b.ids[i].param()
	}
	return out
}

// all are the indexes of every entry.
func (b *entries) all() []int { return inOrder(len(b.batch)) }

// insert are the statements that insert some entries, whose keys may be taken
// already; inserted is called with each that was.
func (b *entries) insert(which []int, taken bool, inserted func(id uuid, state job.State, soon bool)) []call {
	n := len(which)
	var (
		jobs, queues, tenants    = make([]string, n), make([]string, n), make([]string, n)
		keys, by, traces         = make([]*string, n), make([]*string, n), make([]*string, n)
		inputs                   = make([][]byte, n)
		priorities               = make([]int16, n)
		attempts                 = make([]int32, n)
		times                    = make([]*time.Time, n)
		delays                   = make([]int64, n)
		parents, aliens          = make([]pgtype.UUID, n), make([]pgtype.UUID, n)
		apartIDs                 []pgtype.UUID
		apart                    [][]byte
		lastJob, lastQueue, encJ string
		encQ                     string
	)
	for n, i := range which {
		p := &b.batch[i]
		if n == 0 || p.Job != lastJob {
			lastJob, encJ = p.Job, enc(p.Job)
		}
		if n == 0 || p.Queue != lastQueue {
			lastQueue, encQ = p.Queue, enc(p.Queue)
		}
		jobs[n], queues[n], tenants[n] = encJ, encQ, enc(p.Tenant)
		keys[n], by[n], traces[n] = storedKey(p), encOrNull(p.EnqueuedBy), encOrNull(p.Traceparent)
		priorities[n], attempts[n] = int16(p.Priority), int32(p.MaxAttempts)
		parents[n] = idParam(p.Parent)
		if inKeys(p) {
			aliens[n] = idParam(p.Key)
		}
		if p.RunAt.IsZero() {
			delays[n] = ms(p.Delay)
		} else {
			times[n] = timeOrNull(p.RunAt)
		}
		if len(p.Input) > inlineInput {
			apartIDs, apart = append(apartIDs, b.ids[i].param()), append(apart, p.Input)
			continue
		}
		if inputs[n] = p.Input; p.Input == nil {
			inputs[n] = []byte{} // NULL says that it is kept apart
		}
	}
	calls := []call{{
		st:   qEnqueue,
		args: []any{b.picked(which), jobs, queues, tenants, keys, inputs, priorities, attempts, times, delays, parents, by, traces, aliens, taken},
		scan: func(r *row) error {
			inserted(r.id(), job.State(r.text()), r.bool())
			return nil
		},
	}}
	if len(apart) > 0 {
		calls = append(calls, call{st: qInputs, args: []any{apartIDs, apart}})
	}
	return calls
}

// check is the statement that fails if some entries turn out not to be new.
func (b *entries) check(which []int) call {
	low, high := b.ids[which[0]], b.ids[which[0]]
	for _, i := range which {
		if id := b.ids[i]; slices.Compare(id[:], low[:]) < 0 {
			low = id
		} else if slices.Compare(id[:], high[:]) > 0 {
			high = id
		}
	}
	return call{st: qCheckNew, args: append([]any{b.picked(which), low.param(), high.param()}, b.withKey(which)...)}
}

// withKey are the arguments for the entries among which whose key is in live_keys.
func (b *entries) withKey(which []int) []any {
	var ids []pgtype.UUID
	jobs, tenants, keys := []string{}, []string{}, []string{}
	for _, i := range which {
		if p := &b.batch[i]; inKeys(p) {
			ids = append(ids, b.ids[i].param())
			jobs, tenants, keys = append(jobs, enc(p.Job)), append(tenants, enc(p.Tenant)), append(keys, enc(p.Key))
		}
	}
	return []any{ids, jobs, tenants, keys}
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
		calls = append(calls, b.check(all))
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

// enter answers an entry that was inserted.
func (b *entries) enter(i int, state job.State, soon bool) {
	b.results[i], b.soon[i] = store.EnqueueResult{ID: b.batch[i].ID, State: state}, soon
}

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

// takeKeys takes the keys of some entries, or finds out who holds them: those are
// the deduped, whose holders now stay.
func (s *Store) takeKeys(ctx context.Context, tx pgx.Tx, b *entries, which []int) (fresh, deduped []int, err error) {
	type name struct{ job, tenant, key string }
	first := map[name]int{}
	var ids []pgtype.UUID
	var aliens []pgtype.UUID
	jobs, tenants, keys := []string{}, []string{}, []string{}
	for _, i := range which {
		p := &b.batch[i]
		if !inKeys(p) {
			fresh = append(fresh, i)
			continue
		}
		n := name{enc(p.Job), enc(p.Tenant), enc(p.Key)}
		if _, ok := first[n]; ok {
			deduped = append(deduped, i)
			continue
		}
		first[n] = i
		ids, jobs, tenants, keys = append(ids, b.ids[i].param()), append(jobs, n.job), append(tenants, n.tenant), append(keys, n.key)
		aliens = append(aliens, idParam(p.Key))
	}
	err = s.run(ctx, tx, call{st: qTakeKeys, args: []any{ids, jobs, tenants, keys, aliens}, scan: func(r *row) error {
		i := first[name{string(r.next()), string(r.next()), string(r.next())}]
		if r.id() == b.ids[i] {
			fresh = append(fresh, i)
		} else {
			deduped = append(deduped, i)
		}
		return nil
	}})
	return fresh, deduped, err
}

// states are those of the runs that some entries' ids name.
func (s *Store) states(ctx context.Context, q queryer, b *entries, which []int) (map[uuid]job.State, error) {
	known := map[uuid]job.State{}
	err := s.run(ctx, q, call{st: qFindStates, args: []any{b.picked(which)}, scan: func(r *row) error {
		id, text := r.id(), r.text()
		state, err := job.ParseState(text)
		if err != nil {
			return errRowStatus("state", text, id.String())
		}
		known[id] = state
		return nil
	}})
	return known, err
}

// holders answers the entries whose key a live run holds, and returns the rest:
// their id is taken since, or the holder has ended.
func (s *Store) holders(ctx context.Context, q queryer, b *entries, which []int) (left []int, err error) {
	known, err := s.states(ctx, q, b, which)
	if err != nil {
		return nil, err
	}
	var ask []int
	jobs, tenants, keys := []string{}, []string{}, []string{}
	for _, i := range which {
		p := &b.batch[i]
		if _, ok := known[b.ids[i]]; ok || !inKeys(p) {
			left = append(left, i)
			continue
		}
		ask = append(ask, i)
		jobs, tenants, keys = append(jobs, enc(p.Job)), append(tenants, enc(p.Tenant)), append(keys, enc(p.Key))
	}
	err = s.run(ctx, q, call{st: qFindHolders, args: []any{jobs, tenants, keys}, scan: func(r *row) error {
		i := ask[r.int()-1]
		id, text := r.uuid(), r.text()
		state, err := job.ParseState(text)
		if err != nil {
			return errRowStatus("state", text, id)
		}
		b.results[i] = store.EnqueueResult{ID: id, Deduped: true, State: state}
		return nil
	}})
	for _, i := range ask {
		if b.results[i].ID == "" {
			left = append(left, i)
		}
	}
	return left, err
}

// idHolders answers the entries whose key a live run holds by way of an id, its
// own or that of the entry, and returns the rest.
func (s *Store) idHolders(ctx context.Context, q queryer, b *entries, which []int) (left []int, err error) {
	var ask []int
	var ids, aliens []pgtype.UUID
	jobs, tenants := []string{}, []string{}
	for _, i := range which {
		p := &b.batch[i]
		if _, isID := parseUUID(p.Key); !isID {
			continue
		}
		alien := pgtype.UUID{}
		if inKeys(p) {
			alien = idParam(p.Key)
		}
		ask = append(ask, i)
		ids, jobs, tenants, aliens = append(ids, b.ids[i].param()), append(jobs, enc(p.Job)), append(tenants, enc(p.Tenant)), append(aliens, alien)
	}
	if len(ask) == 0 {
		return which, nil
	}
	held := map[int]bool{}
	err = s.run(ctx, q, call{st: qFindIDHolders, args: []any{ids, jobs, tenants, aliens}, scan: func(r *row) error {
		i := ask[r.int()-1]
		id, text := r.uuid(), r.text()
		state, err := job.ParseState(text)
		if err != nil {
			return errRowStatus("state", text, id)
		}
		held[i] = true
		b.results[i] = store.EnqueueResult{ID: id, Deduped: true, State: state}
		return nil
	}})
	for _, i := range which {
		if !held[i] {
			left = append(left, i)
		}
	}
	return left, err
}

// liveArgs are the arguments of the statement find_live.
func liveArgs(jobName, tenant, key string) []any {
	return []any{enc(jobName), enc(tenant), enc(key), idParam(key)}
}

// FindLive implements store.Enqueuer.
func (s *Store) FindLive(ctx context.Context, jobName, tenant, key string) (id string, err error) {
	if key == "" {
		return "", nil
	}
	err = s.read(ctx, func(q queryer) error {
		id = ""
		return s.run(ctx, q, call{st: qFindLive, args: liveArgs(jobName, tenant, key), scan: func(r *row) error {
			id = r.uuid()
			return nil
		}})
	})
	return id, err
}
