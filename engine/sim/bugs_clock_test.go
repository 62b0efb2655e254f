package sim_test

import (
	"context"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

// shifted has the database take some operations to be at another time.
type shifted struct {
	store.Store
	w   *world
	ops []string
	by  time.Duration // 0 has them at the time of whoever asks: the decision is its clock's
}

// at moves the database's clock for one operation, beside which there is no other.
func (s *shifted) at(ctx context.Context, op string) (back func()) {
	if !slices.Contains(s.ops, op) {
		return func() {}
	}
	was := s.w.skew.Load()
	now := was + int64(s.by)
	if p, ok := ctx.Value(asking{}).(*process); ok && s.by == 0 {
		now = int64(p.off)
	}
	s.w.skew.Store(now)
	return func() { s.w.skew.Store(was) }
}

func (s *shifted) Enqueue(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	defer s.at(ctx, "Enqueue")()
	return s.Store.Enqueue(ctx, batch)
}

func (s *shifted) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	defer s.at(ctx, "Claim")()
	return s.Store.Claim(ctx, p)
}

func (s *shifted) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	defer s.at(ctx, "Settle")()
	return s.Store.Settle(ctx, batch)
}

func (s *shifted) Renew(ctx context.Context, p store.RenewParams) (store.RenewResult, error) {
	defer s.at(ctx, "Renew")()
	return s.Store.Renew(ctx, p)
}

func (s *shifted) Reclaim(ctx context.Context, p store.ReclaimParams) (store.ReclaimResult, error) {
	defer s.at(ctx, "Reclaim")()
	return s.Store.Reclaim(ctx, p)
}

func (s *shifted) Publish(ctx context.Context, batch []store.EventParams) ([]store.EventResult, error) {
	defer s.at(ctx, "Publish")()
	return s.Store.Publish(ctx, batch)
}

func (s *shifted) LeadSchedules(ctx context.Context, p store.LeadParams) (store.LeadResult, error) {
	defer s.at(ctx, "LeadSchedules")()
	return s.Store.LeadSchedules(ctx, p)
}

func (s *shifted) FireSchedule(ctx context.Context, p store.FireParams) (store.FireResult, error) {
	defer s.at(ctx, "FireSchedule")()
	return s.Store.FireSchedule(ctx, p)
}

func (s *shifted) Purge(ctx context.Context, limit int) (int, error) {
	defer s.at(ctx, "Purge")()
	return s.Store.Purge(ctx, limit)
}

func (s *shifted) PurgeEvents(ctx context.Context, limit int) (int, error) {
	defer s.at(ctx, "PurgeEvents")()
	return s.Store.PurgeEvents(ctx, limit)
}

// ownTime has operations go by the clock of the process that asks for them.
func ownTime(ops ...string) func(store.Store, *world) store.Store {
	return func(db store.Store, w *world) store.Store { return &shifted{Store: db, w: w, ops: ops} }
}

// ahead has an operation done as if it were that much later.
func ahead(by time.Duration, ops ...string) func(store.Store, *world) store.Store {
	return func(db store.Store, w *world) store.Store { return &shifted{Store: db, w: w, ops: ops, by: by} }
}

// halves keeps runs that have ended for half of their time.
type halves struct{ store.Store }

func (s *halves) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Retention /= 2
	}
	return s.Store.Settle(ctx, batch)
}
