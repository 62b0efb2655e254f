package app

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jobrunner/runner/engine/manifest"
)

// Reload loads manifest and modules again and serves them from now on. Nothing
// is replaced unless everything is in order: otherwise the old goes on, and
// every problem is in the log. Attempts under way keep the module they began
// with, and so do started runs of jobs with on_deploy = "pin".
//
// It reports whether something was replaced; what went wrong has been logged.
func (s *Server) Reload(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.load(ctx, s.loaded)
	if err != nil {
		s.attempted = filesNamed(s.cfg.Manifest)
		s.logRefused(err)
		return false
	}
	if fixed := s.fixedChanges(next.Manifest); len(fixed) > 0 {
		s.cfg.Logger.Warn("serve.reload-partial", "keys", fixed, "fix", "restart to apply these keys of [runner]; the rest is served")
	}
	if s.engine != nil {
		if _, err := s.engine.Switch(next.Deployment()); err != nil {
			next.Close(s.host.CloseGuest)
			s.logRefused(err)
			return false
		}
	}
	s.current.Store(next.Manifest)
	if s.scheduler != nil {
		s.scheduler.Kick()
	}
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(next.Guests)) {
		if next.Guests[name] != s.loaded.Guests[name] {
			changed = append(changed, name)
		}
	}
	same := len(changed) == 0 && maps.Equal(next.stamps, s.loaded.stamps)
	s.loaded, s.attempted = next, nil
	if same {
		s.cfg.Logger.Info("serve.reload-unchanged", "manifest_sha256", next.Manifest.Digest)
		return false
	}
	s.cfg.Logger.Info("serve.reloaded", "manifest_sha256", next.Manifest.Digest, "changed_modules", changed, "jobs", len(next.Manifest.Jobs))
	return true
}

// Files are what is served was read from, and what a refused load would read,
// for a watcher: the module that was missing may appear.
func (s *Server) Files() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := slices.Concat(s.loaded.Files, s.attempted)
	slices.Sort(files)
	return slices.Compact(files)
}

// filesNamed are the files of the manifest at path, if it is one.
func filesNamed(path string) []string {
	m, _ := manifest.Load(path)
	if m == nil {
		return nil
	}
	return filesOf(m)
}

func (s *Server) logRefused(err error) {
	var report *manifest.Report
	if !errors.As(err, &report) {
		s.cfg.Logger.Error("serve.reload-refused", "error", err)
		return
	}
	for _, p := range report.Problems {
		s.cfg.Logger.Error("serve.problem", "place", p.Place(), "code", p.Code, "message", p.Message, "fix", p.Fix)
	}
	s.cfg.Logger.Error("serve.reload-refused", "problems", len(report.Problems), "fix", "what was served before is still served")
}

// fixedChanges are the keys of [runner] that differ and that only a restart applies.
func (s *Server) fixedChanges(next *manifest.Manifest) []string {
	a, b := s.loaded.Manifest.Runner, next.Runner
	var keys []string
	for _, k := range []struct {
		key  string
		same bool
	}{
		{"database", a.Database == b.Database},
		{"data_dir", a.DataDir == b.DataDir},
		{"lease", a.Lease == b.Lease},
		{"drain", a.Drain == b.Drain},
		{"cpu_slots", a.CPUSlots == b.CPUSlots},
	} {
		if !k.same {
			keys = append(keys, k.key)
		}
	}
	return keys
}
