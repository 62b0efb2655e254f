package app

import (
	"context"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

const (
	// tidyEvery is how often a process that serves looks after data_dir.
	tidyEvery = 24 * time.Hour
	// keepUnused is how long what nobody uses is kept there: longer than any
	// deployment is rolled back, and than a server is away.
	keepUnused = 30 * 24 * time.Hour
	// maxPinned bounds the runs that are looked at for their modules. Beyond it no
	// copy is removed.
	maxPinned = 100_000
)

// tidyDaily tidies data_dir now and once a day until ctx ends.
func (s *Server) tidyDaily(ctx context.Context) {
	t := time.NewTicker(tidyEvery)
	defer t.Stop()
	for {
		s.tidy(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// tidy notes which copies of modules are still needed here, and removes those, and
// compiled modules, that no process has needed for keepUnused. Needed is what is
// deployed, and what a run is pinned to that has not ended or may be tried again.
func (s *Server) tidy(ctx context.Context, now time.Time) {
	c := copies{dir: modulesDir(s.Manifest())}
	needed, err := s.neededCopies(ctx, c)
	if err != nil {
		s.cfg.Logger.Warn("serve.tidy-failed", "error", err, "fix", "nothing was removed; it is tried again tomorrow")
		return
	}
	for _, digest := range needed {
		c.use(digest, now)
	}
	removed, err := c.expire(now.Add(-keepUnused))
	compiled, cacheErr := s.host.ExpireCache(now.Add(-keepUnused))
	for _, err := range []error{err, cacheErr} {
		if err != nil {
			s.cfg.Logger.Warn("serve.tidy-failed", "error", err)
		}
	}
	if removed+compiled > 0 {
		s.cfg.Logger.Info("serve.tidied", "modules", removed, "compiled", compiled)
	}
}

// neededCopies are the digests that this process or its database needs: all there
// are, if the database has more runs than can be looked at.
func (s *Server) neededCopies(ctx context.Context, c copies) ([]string, error) {
	all, err := c.all()
	if err != nil {
		return nil, err
	}
	needed := map[string]bool{}
	for _, g := range s.engine.Deployment().Guests {
		needed[g.Digest()] = true
	}
	if !slices.ContainsFunc(all, func(digest string) bool { return !needed[digest] }) {
		return all, nil
	}
	seen := 0
	for _, state := range []job.State{job.Ready, job.Delayed, job.Running, job.Suspended, job.Dead} {
		for before := ""; ; {
			page, err := s.store.List(ctx, store.ListParams{State: state, Before: before, Limit: 1000})
			if err != nil {
				return nil, err
			}
			if len(page) == 0 {
				break
			}
			for _, r := range page {
				needed[r.Module] = true
			}
			if seen += len(page); seen > maxPinned {
				return all, nil
			}
			before = page[len(page)-1].ID
		}
	}
	return slices.DeleteFunc(all, func(digest string) bool { return !needed[digest] }), nil
}
