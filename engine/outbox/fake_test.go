package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// fake is an outbox without a database, for tests of time: rows wait, and
// what is claimed is settled or released. It knows no fences.
type fake struct {
	mu        sync.Mutex
	waiting   []store.Staged
	published []string
	released  int
	purged    int // rows that a purge finds
	counts    map[string]int
	listening bool
	wake      func()
	fault     func(ctx context.Context, op string) error // nil does not fail
}

func (f *fake) stage(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		id := fmt.Sprintf("01970000-0000-7000-8000-%012x", len(f.waiting)+len(f.published))
		f.waiting = append(f.waiting, store.Staged{StageParams: store.StageParams{ID: id, Job: "free"}})
	}
}

func (f *fake) begin(ctx context.Context, op string) error {
	f.mu.Lock()
	if f.counts == nil {
		f.counts = map[string]int{}
	}
	f.counts[op]++
	fault := f.fault
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, op)
	}
	return nil
}

// total is how many statements an outbox would have run.
func (f *fake) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.counts {
		n += c
	}
	return n
}

func (f *fake) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[op]
}

// left is how many rows a purge would find.
func (f *fake) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.purged
}

// poke wakes whoever listens.
func (f *fake) poke() {
	f.mu.Lock()
	wake := f.wake
	f.mu.Unlock()
	if wake != nil {
		wake()
	}
}

func (f *fake) done() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.published
}

func (f *fake) Claim(ctx context.Context, p store.StagedClaimParams) ([]store.Staged, error) {
	if err := f.begin(ctx, "claim"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]store.Staged(nil), f.waiting[:min(p.Limit, len(f.waiting))]...), nil
}

func (f *fake) SettleStaged(ctx context.Context, batch []store.StagedSettleParams) ([]bool, error) {
	if err := f.begin(ctx, "settle"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	landed := make([]bool, len(batch))
	for i, p := range batch {
		landed[i] = true
		f.published = append(f.published, p.Ref.ID)
	}
	f.waiting = f.waiting[len(batch):]
	return landed, nil
}

func (f *fake) Release(ctx context.Context, refs []store.StagedRef) error {
	f.mu.Lock()
	f.released += len(refs)
	f.mu.Unlock()
	return f.begin(ctx, "release")
}

func (f *fake) Purge(ctx context.Context, _ time.Duration, limit int) (int, error) {
	if err := f.begin(ctx, "purge"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(limit, f.purged)
	f.purged -= n
	return n, nil
}

func (f *fake) OutboxStats(ctx context.Context) (store.OutboxStats, error) {
	err := f.begin(ctx, "stats")
	f.mu.Lock()
	defer f.mu.Unlock()
	return store.OutboxStats{Waiting: int64(len(f.waiting)), Rejected: 3, Oldest: time.Minute}, err
}

func (f *fake) Wakes(wake func()) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wake = wake
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.wake = nil
	}
}

func (f *fake) Listening() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listening
}

// accepts is a queue that takes everything.
func accepts(_ context.Context, requests []queue.Request) ([]queue.Verdict, error) {
	out := make([]queue.Verdict, len(requests))
	for i := range requests {
		out[i].ID = requests[i].ID
	}
	return out, nil
}
