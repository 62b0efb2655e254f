package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// CodeTryEndless says that a tried job never comes to rest.
const CodeTryEndless = "X_TRY_ENDLESS"

// TryParams say what to try.
type TryParams struct {
	Manifest string // path
	Request  engine.Request
	Events   []TryEvent
	Getenv   func(string) string
	Logger   *slog.Logger // what the handler logs
}

// TryEvent is published by someone else, After the run was enqueued.
type TryEvent struct {
	After time.Duration
	engine.Event
}

// Tried is a run with everything that happened to it.
type Tried struct {
	Run      job.Run
	Attempts []job.AttemptRecord
	Steps    []job.Step
}

// Try runs one job, and what it enqueues, to the end in memory, on a clock that
// jumps over every wait. It answers the run first, then those it led to, oldest
// first.
//
// Errors: a *manifest.Report, those of an enqueue, X_TRY_ENDLESS, and ctx's.
func Try(ctx context.Context, p TryParams) (tried []Tried, err error) {
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	m, report := manifest.Load(p.Manifest)
	if report != nil {
		return nil, report
	}
	h, err := tryHost(ctx, p, m)
	if err != nil {
		return nil, err
	}
	defer func() { _ = h.Close(context.WithoutCancel(ctx)) }()
	lp := LoadParams{Path: p.Manifest, Loader: h.Load, Close: h.CloseGuest}
	// An author may have built nothing yet but the module of this job.
	j := m.Jobs[p.Request.Job]
	lp.Later = func(module string) bool { return j == nil || module != j.Module }
	loaded, err := Load(ctx, lp)
	if err != nil {
		return nil, err
	}
	clock := &virtualClock{}
	inner, err := openMemory(ctx, clock.Now)
	if err != nil {
		loaded.Close(h.CloseGuest)
		return nil, err
	}
	defer func() { _ = inner.Close() }()
	s := newVirtualStore(inner, clock)
	e, err := engine.New(engine.Config{
		Store: s, Deployment: loaded.Deployment(), CloseGuest: h.CloseGuest, Logger: p.Logger, Alone: true, NoSchedules: true,
	})
	if err != nil {
		loaded.Close(h.CloseGuest)
		return nil, err
	}
	defer func() { _ = e.Close() }()
	root, err := e.Client().Enqueue(ctx, p.Request)
	if err != nil {
		return nil, err
	}
	if err := s.schedule(p.Events); err != nil {
		return nil, err
	}
	if err := e.Start(ctx); err != nil {
		return nil, err
	}
	select {
	case <-s.idle:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s.over {
		return nil, &abi.Error{
			Code:    CodeTryEndless,
			Message: fmt.Sprintf("the run came due again more than %d times and would go on", maxJumps),
			Fix:     "look for a wait or a retry that never ends",
		}
	}
	return family(ctx, e.Client(), root.ID)
}

// schedule has events published when the clock gets there.
func (s *virtualStore) schedule(events []TryEvent) error {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		params, err := queue.PrepareEvent(e.Event)
		if err != nil {
			return err
		}
		s.events = append(s.events, virtualEvent{now.Add(e.After), params})
	}
	slices.SortStableFunc(s.events, func(a, b virtualEvent) int { return a.at.Compare(b.at) })
	return nil
}

// tryHost is a host that keeps compiled modules where serve does, if that can be
// written to: an author tries again and again.
func tryHost(ctx context.Context, p TryParams, m *manifest.Manifest) (*Host, error) {
	hp := HostParams{Getenv: p.Getenv, Logger: p.Logger, CacheDir: CacheDir(m)}
	if h, err := NewHost(ctx, hp); err == nil {
		return h, nil
	}
	hp.CacheDir = ""
	return NewHost(ctx, hp)
}

// family is the run with id and all those it led to.
func family(ctx context.Context, c *engine.Client, id string) ([]Tried, error) {
	var runs []job.Run
	for before := ""; ; {
		page, err := c.List(ctx, store.ListParams{Before: before, Limit: 1000})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		runs = append(runs, page...)
		before = page[len(page)-1].ID
	}
	slices.SortFunc(runs, func(a, b job.Run) int {
		if a.ID == id || b.ID == id { // the root first, whatever ids its children have
			return boolOrder(a.ID == id, b.ID == id)
		}
		return strings.Compare(a.ID, b.ID)
	})
	tried := make([]Tried, len(runs))
	for i, r := range runs {
		var err error
		if tried[i].Run, err = c.Get(ctx, r.ID); err != nil {
			return nil, err
		}
		if tried[i].Attempts, err = c.Attempts(ctx, r.ID); err != nil {
			return nil, err
		}
		if tried[i].Steps, err = c.Steps(ctx, r.ID); err != nil {
			return nil, err
		}
	}
	return tried, nil
}

func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
