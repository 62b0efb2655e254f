package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/sqlite"
)

// Memory opens a database in memory that ends with the test.
func Memory(t testing.TB) store.Store {
	t.Helper()
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: sqlite.Memory, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// Store lets a test stand between the engine and a database.
type Store struct {
	store.Store
	// Between is called around each operation, named as the method is. call does
	// it on the database; it may be left out, delayed or done before an error is
	// answered. Nil does the operation. Set before the store is used.
	Between func(ctx context.Context, op string, call func() error) error

	mu     sync.Mutex
	counts map[string]int
}

// Lost does the operation and loses its answer.
func Lost(call func() error) error {
	if err := call(); err != nil {
		return err
	}
	return fmt.Errorf("connection closed after send: %w", store.ErrUnknown)
}

// Away is the error of a database that cannot be reached.
func Away() error {
	return &abi.Error{Code: job.CodeDatabaseUnavailable, Message: "the database is away"}
}

// Broken is an error that no repeat mends.
func Broken() error {
	return &abi.Error{Code: job.CodeDatabaseCorrupt, Message: "the file is damaged", Err: errors.New("SQLITE_CORRUPT")}
}

// Count is how often op was asked for.
func (s *Store) Count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

func (s *Store) do(ctx context.Context, op string, call func() error) error {
	s.mu.Lock()
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.counts[op]++
	s.mu.Unlock()
	if s.Between == nil {
		return call()
	}
	return s.Between(ctx, op, call)
}

// through is an operation with a result. What an operation answered is not
// given out with an error.
func through[R any](s *Store, ctx context.Context, op string, call func() (R, error)) (R, error) {
	var r R
	err := s.do(ctx, op, func() (err error) {
		r, err = call()
		return err
	})
	if err != nil {
		var zero R
		return zero, err
	}
	return r, nil
}

func (s *Store) Enqueue(ctx context.Context, b []store.EnqueueParams) ([]store.EnqueueResult, error) {
	return through(s, ctx, "Enqueue", func() ([]store.EnqueueResult, error) { return s.Store.Enqueue(ctx, b) })
}

func (s *Store) EnqueueIf(ctx context.Context, b []store.EnqueueParams, accept func([]store.EnqueueResult) error) ([]store.EnqueueResult, error) {
	return through(s, ctx, "EnqueueIf", func() ([]store.EnqueueResult, error) { return s.Store.EnqueueIf(ctx, b, accept) })
}

func (s *Store) FindLive(ctx context.Context, name, tenant, key string) (string, error) {
	return through(s, ctx, "FindLive", func() (string, error) { return s.Store.FindLive(ctx, name, tenant, key) })
}

func (s *Store) InvokeDepth(ctx context.Context, id string, most int) (int, error) {
	return through(s, ctx, "InvokeDepth", func() (int, error) { return s.Store.InvokeDepth(ctx, id, most) })
}

func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	return through(s, ctx, "Claim", func() (store.ClaimResult, error) { return s.Store.Claim(ctx, p) })
}

func (s *Store) Settle(ctx context.Context, b []store.SettleParams) ([]store.SettleResult, error) {
	return through(s, ctx, "Settle", func() ([]store.SettleResult, error) { return s.Store.Settle(ctx, b) })
}

func (s *Store) ListSteps(ctx context.Context, id string) ([]job.Step, error) {
	return through(s, ctx, "ListSteps", func() ([]job.Step, error) { return s.Store.ListSteps(ctx, id) })
}

func (s *Store) SaveSteps(ctx context.Context, b []store.StepParams) ([]store.StepResult, error) {
	return through(s, ctx, "SaveSteps", func() ([]store.StepResult, error) { return s.Store.SaveSteps(ctx, b) })
}

func (s *Store) SaveLogs(ctx context.Context, b []store.LogParams) error {
	return s.do(ctx, "SaveLogs", func() error { return s.Store.SaveLogs(ctx, b) })
}

func (s *Store) Register(ctx context.Context, p store.RegisterParams) error {
	return s.do(ctx, "Register", func() error { return s.Store.Register(ctx, p) })
}

func (s *Store) Renew(ctx context.Context, p store.RenewParams) (store.RenewResult, error) {
	return through(s, ctx, "Renew", func() (store.RenewResult, error) { return s.Store.Renew(ctx, p) })
}

func (s *Store) Deregister(ctx context.Context, id string) error {
	return s.do(ctx, "Deregister", func() error { return s.Store.Deregister(ctx, id) })
}

func (s *Store) LetGo(ctx context.Context, ref job.Ref) error {
	return s.do(ctx, "LetGo", func() error { return s.Store.LetGo(ctx, ref) })
}

func (s *Store) Reclaim(ctx context.Context, p store.ReclaimParams) (store.ReclaimResult, error) {
	return through(s, ctx, "Reclaim", func() (store.ReclaimResult, error) { return s.Store.Reclaim(ctx, p) })
}

func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	return through(s, ctx, "Purge", func() (int, error) { return s.Store.Purge(ctx, limit) })
}

func (s *Store) LeadSchedules(ctx context.Context, p store.LeadParams) (store.LeadResult, error) {
	return through(s, ctx, "LeadSchedules", func() (store.LeadResult, error) { return s.Store.LeadSchedules(ctx, p) })
}

func (s *Store) ReleaseSchedules(ctx context.Context, holder string) error {
	return s.do(ctx, "ReleaseSchedules", func() error { return s.Store.ReleaseSchedules(ctx, holder) })
}

func (s *Store) FireSchedule(ctx context.Context, p store.FireParams) (store.FireResult, error) {
	return through(s, ctx, "FireSchedule", func() (store.FireResult, error) { return s.Store.FireSchedule(ctx, p) })
}

// Sometimes answers faults by turns of a generator: each operation may be
// refused before it is done, or its answer lost after.
type Sometimes struct {
	Rand   func() float64 // [0, 1); called with a lock held
	Refuse float64        // share of operations that are refused
	Lose   float64        // share whose answer is lost
	Break  float64        // share that fails in a way no repeat mends
	Delay  time.Duration  // longest wait before an operation

	mu sync.Mutex
}

// Between is a Store.Between.
func (f *Sometimes) Between(ctx context.Context, _ string, call func() error) error {
	f.mu.Lock()
	turn, wait := f.Rand(), time.Duration(f.Rand()*float64(f.Delay))
	refuse, lose, broken := f.Refuse, f.Lose, f.Break
	f.mu.Unlock()
	time.Sleep(wait)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case turn < refuse:
		return Away()
	case turn < refuse+lose:
		return Lost(call)
	case turn < refuse+lose+broken:
		return Broken()
	}
	return call()
}

// Calm ends the faults.
func (f *Sometimes) Calm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Refuse, f.Lose, f.Break, f.Delay = 0, 0, 0, 0
}
