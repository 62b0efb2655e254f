package sim_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// staged is the table of an application, in memory: what store.OutboxRelay says of
// one, and nothing that is not atomic.
type staged struct {
	mu    sync.Mutex
	rows  []*stagedRow // in the order of staging
	gone  []*stagedRow // that were purged
	wakes map[int]func()
	subs  int
}

type stagedRow struct {
	store.Staged
	until  time.Time       // of its lease
	relays map[string]bool // that ever claimed it
	poison string          // code with which it is to be rejected
	place  int             // in the order of staging
}

func newStaged() *staged { return &staged{wakes: map[int]func(){}} }

func (s *staged) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.rows, func(r *stagedRow) bool { return r.State == store.Waiting })
}

// waits reports whether an id is of a row that is not settled.
func (s *staged) waits(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(id)
	return r != nil && r.State == store.Waiting
}

func (s *staged) find(id string) *stagedRow {
	if i := slices.IndexFunc(s.rows, func(r *stagedRow) bool { return r.ID == id }); i >= 0 {
		return s.rows[i]
	}
	return nil
}

func (s *staged) claim(p store.StagedClaimParams) (out []store.Staged) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, r := range s.rows {
		free := r.Relay == "" || r.Relay == p.Relay || !r.until.After(now)
		if r.State != store.Waiting || !free || len(out) == p.Limit {
			continue
		}
		r.Relay, r.until = p.Relay, now.Add(p.Lease)
		r.Claim++
		r.Age = now.Sub(r.StagedAt)
		r.relays[p.Relay] = true
		out = append(out, r.Staged)
	}
	return out
}

func (s *staged) held(ref store.StagedRef) *stagedRow {
	if r := s.find(ref.ID); r != nil && r.Relay == ref.Relay && r.Claim == ref.Claim {
		return r
	}
	return nil
}

func (s *staged) settle(batch []store.StagedSettleParams) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]bool, len(batch))
	for i, p := range batch {
		r := s.held(p.Ref)
		if r == nil {
			continue
		}
		out[i] = true
		if r.State != store.Waiting {
			continue
		}
		r.State, r.RunID, r.Code, r.Reason, r.SettledAt = store.Published, p.RunID, p.Code, p.Reason, time.Now()
		if p.Code != "" {
			r.State = store.Rejected
		}
	}
	return out
}

func (s *staged) release(refs []store.StagedRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range refs {
		if r := s.held(ref); r != nil && r.State == store.Waiting {
			r.Relay = ""
		}
	}
}

func (s *staged) purge(keep time.Duration, limit int) (gone []*stagedRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = slices.DeleteFunc(s.rows, func(r *stagedRow) bool {
		if r.State != store.Published || time.Since(r.SettledAt) < keep || len(gone) == limit {
			return false
		}
		gone = append(gone, r)
		return true
	})
	s.gone = append(s.gone, gone...)
	return gone
}

// outboxView is a relay's connection to the application's database.
type outboxView struct{ p *process }

var _ store.OutboxRelay = (*outboxView)(nil)

func (v *outboxView) Claim(ctx context.Context, p store.StagedClaimParams) ([]store.Staged, error) {
	return act(v.p, ctx, call{op: "outbox.Claim"},
		func(context.Context) ([]store.Staged, error) { return v.p.w.outbox.claim(p), nil }, nil)
}

func (v *outboxView) SettleStaged(ctx context.Context, batch []store.StagedSettleParams) ([]bool, error) {
	batch = slices.Clone(batch)
	return act(v.p, ctx, call{op: "outbox.Settle", what: fmt.Sprint(len(batch))},
		func(context.Context) ([]bool, error) { return v.p.w.outbox.settle(batch), nil },
		func(landed []bool) { v.p.w.book.relayed(batch, landed) })
}

func (v *outboxView) Release(ctx context.Context, refs []store.StagedRef) error {
	if len(refs) == 0 {
		return nil
	}
	refs = slices.Clone(refs)
	_, err := act(v.p, ctx, call{op: "outbox.Release", what: fmt.Sprint(len(refs))}, func(context.Context) (struct{}, error) {
		v.p.w.outbox.release(refs)
		return struct{}{}, nil
	}, nil)
	return err
}

func (v *outboxView) Purge(ctx context.Context, keep time.Duration, limit int) (int, error) {
	gone, err := act(v.p, ctx, call{op: "outbox.Purge"},
		func(context.Context) ([]*stagedRow, error) { return v.p.w.outbox.purge(keep, limit), nil },
		func(gone []*stagedRow) {
			v.p.w.count("rows purged", len(gone))
			v.p.w.book.rowsPurged(gone)
		})
	return len(gone), err
}

func (v *outboxView) OutboxStats(context.Context) (store.OutboxStats, error) {
	return store.OutboxStats{}, nil
}
func (v *outboxView) Listening() bool { return true }

// Wakes loses some.
func (v *outboxView) Wakes(wake func()) (stop func()) {
	s := v.p.w.outbox
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs++
	n := s.subs
	s.wakes[n] = func() {
		if !v.p.dead.Load() && v.p.w.dice("outbox wake", v.p.name, time.Now()).IntN(3) > 0 {
			wake()
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.wakes, n)
	}
}

// rowsKept is how long a row is kept that was published.
const rowsKept = time.Minute

// relay makes the relay of a process.
func (w *world) relay(p *process, db store.Store) *outbox.Relay {
	var q outbox.Queue = queue.New(queue.Config{Store: db, Manifest: func() *manifest.Manifest { return w.manifest }})
	if w.bug.queue != nil {
		q = w.bug.queue(q)
	}
	keep := rowsKept
	if w.bug.keep > 0 {
		keep = w.bug.keep
	}
	r, err := outbox.New(outbox.Config{Outbox: &outboxView{p}, Queue: q, Lease: 10 * time.Second, Batch: 4, Keep: keep})
	if err != nil {
		panic(err)
	}
	return r
}

// stage has an application commit rows: some can never be published.
func (w *world) stage(n int) {
	s := w.outbox
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		id, err := uuid.NewV7()
		if err != nil {
			panic(err)
		}
		label := fmt.Sprintf("o%d.%d", w.asked, i)
		r := &stagedRow{relays: map[string]bool{}, place: w.staged}
		w.staged++
		r.Staged = store.Staged{State: store.Waiting, StagedAt: time.Now()}
		r.StageParams = store.StageParams{ID: id.String(), Job: "child", Input: encoded(label)}
		switch w.rng.IntN(10) {
		case 8, 9:
			w.asked++
			r.StageParams = store.StageParams{ID: id.String()}
			r.Event = &store.PublishParams{ID: id.String(), Topic: topic, Key: subjects[w.rng.IntN(len(subjects))], Payload: []byte(fmt.Sprint(w.asked))}
			if w.rng.IntN(8) == 0 {
				r.Event.Topic, r.poison = "", job.CodeInvalid
			}
		case 0:
			r.Job, r.poison = "nobody", job.CodeUnknownJob
		case 1:
			r.Job, r.poison = "lane", job.CodeKeyInvalid // without a lane
		case 2, 3:
			r.Job, r.Key = "keyed", keys[w.rng.IntN(len(keys))]
			if w.rng.IntN(2) == 0 {
				r.OnConflict = store.ConflictReject
			}
		case 4:
			r.Delay = w.between(0, 20*time.Second)
		}
		s.rows = append(s.rows, r)
		what := r.Job
		if r.Event != nil {
			what = "event " + string(r.Event.Payload)
		}
		w.note("an application stages %s of %s", label, what)
	}
	for _, n := range slices.Sorted(maps.Keys(s.wakes)) {
		s.wakes[n]()
	}
}

// rowsPurged checks that rows were kept for as long as the relay was told.
func (b *book) rowsPurged(gone []*stagedRow) {
	for _, r := range gone {
		if until := r.SettledAt.Add(rowsKept); r.State != store.Published || until.After(time.Now()) {
			b.wrong("the %s row %s was purged before %s", r.State, r.ID, until)
		}
	}
}

// relayed checks rows that a relay has settled.
func (b *book) relayed(batch []store.StagedSettleParams, landed []bool) {
	s := b.w.outbox
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range batch {
		if !landed[i] {
			continue
		}
		r := s.find(p.Ref.ID)
		switch {
		case p.Code == "" && r.Event != nil:
			if b.born[r.ID] == 0 || p.RunID != "" {
				b.wrong("a relay settled row %s as published, by run %q, and its event was not", p.Ref.ID, p.RunID)
			}
		case p.Code == "" && b.born[p.RunID] == 0:
			b.wrong("a relay settled row %s as published by run %s, which never was", p.Ref.ID, p.RunID)
		case p.Code == "" && p.RunID != p.Ref.ID && r.Key == "":
			b.wrong("row %s has no key, and run %s stands for it", p.Ref.ID, p.RunID)
		case p.Code != "" && p.Code != r.poison && !(p.Code == job.CodeDuplicate && r.OnConflict == store.ConflictReject):
			b.wrong("row %s of %s was rejected with %s: %s", p.Ref.ID, r.Job, p.Code, p.Reason)
		}
	}
}

// checkOutbox checks what became of the rows, and the order of those that one and
// the same relay had from the first claim on.
func (b *book) checkOutbox() {
	s := b.w.outbox
	s.mu.Lock()
	defer s.mu.Unlock()
	last := map[string]*stagedRow{}
	rows := slices.SortedFunc(slices.Values(slices.Concat(s.rows, s.gone)), func(x, y *stagedRow) int { return x.place - y.place })
	for _, r := range rows {
		switch {
		case r.State == store.Waiting:
			b.wrong("row %s of %s was never published", r.ID, r.Job)
		case r.poison != "" && r.State != store.Rejected:
			b.wrong("row %s of %s is %s, and nobody can run it", r.ID, r.Job, r.State)
		}
		// Whether a key is held may change between two publications of a row.
		if r.State != store.Published || r.Event == nil && r.RunID != r.ID || r.Key != "" || len(r.relays) != 1 {
			continue
		}
		before := last[r.Relay]
		if before != nil && b.born[before.ID] > b.born[r.ID] {
			b.wrong("%s published %s before %s, which was staged first", b.label(r.Relay), b.label(r.ID), b.label(before.ID))
		}
		last[r.Relay] = r
	}
}
