package sim_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

// keyless takes no two keys for one.
type keyless struct {
	store.Store
	n int
}

func (s *keyless) Enqueue(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	batch = slices.Clone(batch)
	for i := range batch {
		s.n++
		batch[i].Key += fmt.Sprint(" ", s.n)
	}
	return s.Store.Enqueue(ctx, batch)
}

// drops answers for a run of a batch that it does not insert.
type drops struct {
	store.Store
	n int
}

func (s *drops) Enqueue(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	last := len(batch) - 1
	if s.n++; s.n%8 > 0 || last < 1 {
		return s.Store.Enqueue(ctx, batch)
	}
	res, err := s.Store.Enqueue(ctx, batch[:last])
	return append(res, store.EnqueueResult{ID: batch[last].ID, State: job.Ready}), err
}

// forces makes anything ready that is promoted.
type forces struct{ store.Store }

func (s *forces) Promote(ctx context.Context, p store.PromoteParams) (job.Run, error) {
	r, err := s.Store.Promote(ctx, p)
	if err == nil {
		return r, nil
	}
	_, _ = s.Cancel(ctx, store.CancelParams{ID: p.ID, NoCompensate: true})
	return s.Requeue(ctx, store.RequeueParams{ID: p.ID})
}

// hasty purges what has not expired.
type hasty struct{ store.Store }

func (s *hasty) Purge(ctx context.Context, _ int) (int, error) {
	done, err := s.List(ctx, store.ListParams{State: job.Done, Limit: 10})
	for _, r := range done {
		_, _ = s.Delete(ctx, store.DeleteParams{ID: r.ID})
	}
	return len(done), err
}

// brief keeps events for half of their time.
type brief struct{ store.Store }

func (s *brief) Publish(ctx context.Context, batch []store.EventParams) ([]store.EventResult, error) {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Keep /= 2
	}
	return s.Store.Publish(ctx, batch)
}

// mute records steps without what they publish.
type mute struct{ store.Store }

func (s *mute) SaveSteps(ctx context.Context, batch []store.StepParams) ([]store.StepResult, error) {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Publish = nil
	}
	return s.Store.SaveSteps(ctx, batch)
}

// rewinds has each wait look again at the event that the one before was given.
type rewinds struct{ store.Store }

func (s *rewinds) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	batch = slices.Clone(batch)
	for i := range batch {
		if st := batch[i].Step; st != nil && st.Wait != nil && !st.Wait.FromNow {
			step, wait := *st, *st.Wait
			wait.After--
			step.Wait = &wait
			batch[i].Step = &step
		}
	}
	return s.Store.Settle(ctx, batch)
}

// unwritten loses the lines of an attempt that ends.
type unwritten struct{ store.Store }

func (s *unwritten) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Log = nil
	}
	return s.Store.Settle(ctx, batch)
}

// repeats does with each delivery of a settle what goes with it.
type repeats struct {
	store.Store
	seen map[job.Ref]bool
}

func (s *repeats) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	res, err := s.Store.Settle(ctx, batch)
	if s.seen == nil {
		s.seen = map[job.Ref]bool{}
	}
	for i := range res {
		p := &batch[i]
		if !res[i].Landed || len(p.Enqueue) == 0 {
			continue
		}
		if s.seen[p.Ref] {
			again := p.Enqueue[0]
			id, _ := uuid.NewV7()
			again.ID, again.Key = id.String(), again.Key+"."
			_, _ = s.Store.Enqueue(ctx, []store.EnqueueParams{again})
		}
		s.seen[p.Ref] = true
	}
	return res, err
}

// reclaims changes the limits that claims keep to.
type reclaims struct {
	store.Store
	change func(queue string, l *limit.Queue)
}

func (s *reclaims) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	p.Queues = slices.Clone(p.Queues)
	for i := range p.Queues {
		if q := &p.Queues[i]; q.Limits != nil {
			with := *q.Limits
			s.change(q.Queue, &with)
			q.Limits = &with
		}
	}
	return s.Store.Claim(ctx, p)
}

// greedy gives no tenant's share a thought.
func greedy(_ string, l *limit.Queue) { l.PerTenant = 0 }

// aloof does not count what the process runs itself.
func aloof(_ string, l *limit.Queue) { l.Here = nil }

// stingy gives a job less than its rate.
func stingy(_ string, l *limit.Queue) {
	jobs := map[string]limit.Job{}
	for name, j := range l.Jobs {
		if name == "metered" {
			j.Rate.Limit--
		}
		jobs[name] = j
	}
	l.Jobs = jobs
}

// stale keeps to the limits that the process began with.
func stale() func(string, *limit.Queue) {
	var mu sync.Mutex
	first := map[string]limit.Queue{}
	return func(queue string, l *limit.Queue) {
		mu.Lock()
		defer mu.Unlock()
		was, known := first[queue]
		if !known {
			first[queue] = *l
			return
		}
		was.Here = l.Here
		*l = was
	}
}

// sits has a run that waits for its children keep its place.
type sits struct {
	store.Store
	w *world
}

func (s *sits) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	p.Queues = slices.Clone(p.Queues)
	for i := range p.Queues {
		for _, r := range s.w.book.runs {
			if r.Queue == p.Queues[i].Queue && r.Job == "nest" && r.State == job.Suspended {
				p.Queues[i].Limit = 0
			}
		}
	}
	return s.Store.Claim(ctx, p)
}

// passes moves a schedule on past an occurrence that it does not account for.
type passes struct {
	store.Store
	w *world
}

func (s *passes) FireSchedule(ctx context.Context, p store.FireParams) (store.FireResult, error) {
	p.To = s.w.declared[p.Name].Next(p.To)
	return s.Store.FireSchedule(ctx, p)
}
