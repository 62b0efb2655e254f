package sim_test

import (
	"context"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// noOrdinal lets a settle land for any claim of the worker that now has the run.
type noOrdinal struct {
	store.Store
	w *world
}

func (s *noOrdinal) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	batch = append([]store.SettleParams(nil), batch...)
	for i := range batch {
		ref := &batch[i].Ref
		if r := s.w.book.runs[ref.RunID]; r.State == job.Running && r.Worker == ref.Worker {
			ref.Claim = r.Claims
		}
	}
	return s.Store.Settle(ctx, batch)
}

// early answers that steps are recorded, and records them after that.
type early struct {
	store.Store
	writes sync.WaitGroup
}

func (s *early) SaveSteps(_ context.Context, batch []store.StepParams) ([]store.StepResult, error) {
	out := make([]store.StepResult, len(batch))
	for i := range batch {
		out[i] = store.StepResult{Landed: true, At: time.Now(), Status: batch[i].Status}
		for _, e := range batch[i].Enqueue {
			out[i].Enqueued = append(out[i].Enqueued, store.EnqueueResult{ID: e.ID})
		}
	}
	batch = append([]store.StepParams(nil), batch...)
	s.writes.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		_, _ = s.Store.SaveSteps(ctx, batch)
	})
	return out, nil
}

// twice answers a claim that finds nothing with what the claim before it found:
// a selection that is read and acted on in two steps.
type twice struct {
	store.Store
	p    *process
	mu   sync.Mutex
	last []job.Run
}

func (s *twice) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, p)
	if err != nil {
		return res, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(res.Runs) == 0 && !res.WorkerGone {
		res.Runs, s.last = s.last, nil
		return res, nil
	}
	s.last = res.Runs
	return res, nil
}

// twoWrites fires a schedule by an enqueue and a move of the watermark, each of
// which commits alone.
type twoWrites struct{ store.Store }

func (s *twoWrites) FireSchedule(ctx context.Context, p store.FireParams) (store.FireResult, error) {
	runs, err := s.Store.Enqueue(ctx, p.Runs)
	if err != nil {
		return store.FireResult{}, err
	}
	p.Runs = nil
	res, err := s.Store.FireSchedule(ctx, p)
	res.Runs = runs
	return res, err
}

// ownClock takes the runs of workers whose lease seems to be over by its process's
// clock, and asks nobody whether it is.
type ownClock struct {
	store.Store
	p *process
}

func (s *ownClock) Reclaim(ctx context.Context, p store.ReclaimParams) (store.ReclaimResult, error) {
	res, err := s.Store.Reclaim(ctx, p)
	if err != nil {
		return res, err
	}
	workers, err := s.Store.ListWorkers(ctx)
	if err != nil {
		return res, err
	}
	for _, w := range workers {
		if w.ExpiresAt.Before(s.p.now()) {
			if err := s.Store.Deregister(ctx, w.ID); err != nil {
				return res, err
			}
		}
	}
	return res, nil
}

// forgetful loses what a settle said of a step: a run that sleeps does it again.
type forgetful struct{ store.Store }

func (s *forgetful) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	batch = append([]store.SettleParams(nil), batch...)
	for i := range batch {
		batch[i].Step = nil
	}
	return s.Store.Settle(ctx, batch)
}

// counted claims by what a process has counted, not by what the fleet holds when
// it acts: no limit is held in the write.
type counted struct{ store.Store }

func (s *counted) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	p.Queues = append([]store.QueueLimit(nil), p.Queues...)
	running, err := s.List(ctx, store.ListParams{State: job.Running, Job: "narrow"})
	for i := range p.Queues {
		if err == nil && len(running) < 2 {
			p.Queues[i].Limits = nil
		}
	}
	return s.Store.Claim(ctx, p)
}

// anew begins each wait where the topic ends when the run parks, and so loses
// what was published since the wait before.
type anew struct{ store.Store }

func (s *anew) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	batch = append([]store.SettleParams(nil), batch...)
	for i := range batch {
		if st := batch[i].Step; st != nil && st.Wait != nil && !st.Wait.FromNow {
			step, wait := *st, *st.Wait
			wait.FromNow = true
			step.Wait = &wait
			batch[i].Step = &step
		}
	}
	return s.Store.Settle(ctx, batch)
}

// PendingEvent finds nothing: the run parks.
func (s *anew) PendingEvent(context.Context, string, store.WaitParams) (bool, error) {
	return false, nil
}
