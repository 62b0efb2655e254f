package bench

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// starts hears from the log when the handler of a run has begun. It is the
// slog.Handler of the server that is measured, and drops everything else.
type starts struct {
	mu      sync.Mutex
	at      map[string]time.Time
	waiting map[string]chan struct{}
}

func newStarts() *starts {
	return &starts{at: map[string]time.Time{}, waiting: map[string]chan struct{}{}}
}

func (s *starts) logger() *slog.Logger { return slog.New(s) }

// Enabled implements slog.Handler.
func (s *starts) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// WithAttrs implements slog.Handler.
func (s *starts) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup implements slog.Handler.
func (s *starts) WithGroup(string) slog.Handler { return s }

// Handle implements slog.Handler.
func (s *starts) Handle(_ context.Context, r slog.Record) error {
	if r.Message != job.LogEvent {
		return nil
	}
	now := time.Now()
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case job.LogAttr: // the first
			return a.Value.String() == startedLine
		case "run":
		default:
			return true
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		id := a.Value.String()
		s.at[id] = now
		if c := s.waiting[id]; c != nil {
			close(c)
			delete(s.waiting, id)
		}
		return false
	})
	return nil
}

// wait answers when the handler of the run began.
func (s *starts) wait(ctx context.Context, id string) (time.Time, error) {
	s.mu.Lock()
	at, ok := s.at[id]
	if ok {
		delete(s.at, id)
		s.mu.Unlock()
		return at, nil
	}
	c := make(chan struct{})
	s.waiting[id] = c
	s.mu.Unlock()
	select {
	case <-c:
		s.mu.Lock()
		defer s.mu.Unlock()
		at := s.at[id]
		delete(s.at, id)
		return at, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

var _ slog.Handler = (*starts)(nil)
