package sim_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// skips believes of the first step of a run that is undone that it has been.
type skips struct{ store.Store }

func (s *skips) ListSteps(ctx context.Context, id string) ([]job.Step, error) {
	steps, err := s.Store.ListSteps(ctx, id)
	if err != nil || !slices.ContainsFunc(steps, func(s job.Step) bool { return s.Kind == job.KindUnwind }) {
		return steps, err
	}
	for i := range steps {
		if isBooking(&steps[i]) {
			return append(steps, job.Step{Name: job.CompensationPrefix + steps[i].Name, Kind: job.KindCompensation, Status: job.StepCompleted}), nil
		}
	}
	return steps, nil
}

// forwards undoes in the order in which things were done.
type forwards struct{ store.Store }

func (s *forwards) ListSteps(ctx context.Context, id string) ([]job.Step, error) {
	steps, err := s.Store.ListSteps(ctx, id)
	for i := range steps {
		steps[i].Seq = 1000 - steps[i].Seq
	}
	return steps, err
}

// orphans ends runs without a look at who waits for them.
type orphans struct{ store.Store }

func (s *orphans) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Parent = ""
	}
	return s.Store.Settle(ctx, batch)
}

// leaves ends runs without a look at their children.
type leaves struct{ store.Store }

func (s *leaves) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Invoked = false
	}
	return s.Store.Settle(ctx, batch)
}

// tellsLater enqueues what an end has enqueued in a write of its own.
type tellsLater struct{ store.Store }

func (s *tellsLater) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	batch = slices.Clone(batch)
	var after []store.EnqueueParams
	for i := range batch {
		after = append(after, batch[i].Enqueue...)
		batch[i].Enqueue = nil
	}
	res, err := s.Store.Settle(ctx, batch)
	if err == nil && len(after) > 0 {
		_, _ = s.Store.Enqueue(ctx, after)
	}
	return res, err
}

// ownRate holds claims to a job's rate by what this process has started.
type ownRate struct {
	store.Store
	p       *process
	mu      sync.Mutex
	started []time.Time
}

func (s *ownRate) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	rate := s.p.w.manifest.Jobs["metered"].Rate
	s.mu.Lock()
	s.started = slices.DeleteFunc(s.started, func(at time.Time) bool { return time.Since(at) > rate.Per })
	free := len(s.started) < rate.Limit
	s.mu.Unlock()
	p.Queues = slices.Clone(p.Queues)
	for i, q := range p.Queues {
		if q.Limits == nil || !free {
			continue
		}
		with := *q.Limits
		with.Jobs = map[string]limit.Job{}
		for name, j := range q.Limits.Jobs {
			if name == "metered" {
				j.Rate = limit.Rate{}
			}
			with.Jobs[name] = j
		}
		p.Queues[i].Limits = &with
	}
	res, err := s.Store.Claim(ctx, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range res.Runs {
		if r.Job == "metered" {
			s.started = append(s.started, time.Now())
		}
	}
	return res, err
}

// slowPause has claims hear of a pause seconds after it was answered: one claim at
// each instant. What it does for that wakes the worker, whose claim would do it again
// before any time has passed, for ever.
type slowPause struct {
	store.Store
	w     *world
	mu    sync.Mutex
	since map[pauseOf]time.Time
	last  time.Time
}

func (s *slowPause) SetPause(ctx context.Context, p store.PauseParams) (bool, error) {
	s.mu.Lock()
	if s.since == nil {
		s.since = map[pauseOf]time.Time{}
	}
	s.since[pauseOf{p.Kind, p.Name}] = time.Now()
	s.mu.Unlock()
	return s.Store.SetPause(ctx, p)
}

func (s *slowPause) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	var young []pauseOf
	s.mu.Lock()
	for of, at := range s.since {
		if time.Since(at) < 3*time.Second && s.w.book.pauses[of] && !time.Now().Equal(s.last) {
			young = append(young, of)
		}
	}
	if len(young) > 0 {
		s.last = time.Now()
	}
	s.mu.Unlock()
	for _, of := range young {
		_, _ = s.Store.SetPause(ctx, store.PauseParams{Kind: of.kind, Name: of.name, Resume: true})
		defer func() { _, _ = s.Store.SetPause(ctx, store.PauseParams{Kind: of.kind, Name: of.name}) }()
	}
	return s.Store.Claim(ctx, p)
}

// headOfLine takes nothing of a queue in which a run waits for its key.
type headOfLine struct {
	store.Store
	w *world
}

func (s *headOfLine) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	p.Queues = slices.Clone(p.Queues)
	for i := range p.Queues {
		for _, r := range s.w.book.runs {
			if r.Queue == p.Queues[i].Queue && r.Blocked != "" {
				p.Queues[i].Limit = 0
			}
		}
	}
	return s.Store.Claim(ctx, p)
}

// unstarted does not write that a once step begins.
type unstarted struct{ store.Store }

func (s *unstarted) SaveSteps(ctx context.Context, batch []store.StepParams) ([]store.StepResult, error) {
	if len(batch) == 1 && batch[0].Status == job.StepStarted {
		return []store.StepResult{{Landed: true, At: time.Now(), Status: job.StepStarted}}, nil
	}
	return s.Store.SaveSteps(ctx, batch)
}

// anonymous publishes rows under new ids, as a queue gives to whoever names none.
type anonymous struct{ outbox.Queue }

func (q *anonymous) EnqueueEach(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error) {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].ID = ""
	}
	return q.Queue.EnqueueEach(ctx, requests)
}

// overtakes publishes each row apart, and what comes after one that failed.
type overtakes struct{ outbox.Queue }

func (q *overtakes) EnqueueEach(ctx context.Context, requests []queue.Request) (out []queue.Verdict, failed error) {
	for i := range requests {
		v, err := q.Queue.EnqueueEach(ctx, requests[i:i+1])
		switch {
		case err != nil:
			failed = errors.Join(failed, err, enginetest.Away())
		case failed == nil:
			out = append(out, v...)
		}
	}
	return out, failed
}
