package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jobrunner/runner/abi"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func attempt(handler string) abi.Attempt {
	return abi.Attempt{Handler: handler, Input: []byte(`{"n":5}`), Now: epoch, Seed: 42, Meta: abi.Meta{RunID: "run-1", Job: "job", Attempt: 1}}
}

// errSuspended is how the scripted calls suspend.
var errSuspended = errors.New("suspended")

// script is an abi.Calls that records every step, and does what a test sets.
type script struct {
	// onBegin, if set, is called for every step_begin.
	onBegin func(ctx context.Context, name string) error
	// suspend names the sleep that is not over.
	suspend string

	mu    sync.Mutex
	steps []string
	lines []string
}

func (s *script) StepBegin(ctx context.Context, name string, _ abi.StepFlags) (abi.StepBegun, error) {
	if s.onBegin != nil {
		if err := s.onBegin(ctx, name); err != nil {
			return abi.StepBegun{}, err
		}
	}
	return abi.StepBegun{}, nil
}
func (s *script) StepEnd(_ context.Context, output []byte) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, string(output))
	return epoch, nil
}
func (s *script) StepFail(context.Context, abi.Failure) (time.Time, error) { return epoch, nil }
func (s *script) Sleep(_ context.Context, name string, _ time.Duration) (time.Time, error) {
	if name == s.suspend {
		return time.Time{}, errSuspended
	}
	return epoch, nil
}
func (s *script) SleepUntil(ctx context.Context, name string, _ time.Time) (time.Time, error) {
	return s.Sleep(ctx, name, 0)
}
func (s *script) WaitEvent(context.Context, abi.WaitParams) ([]byte, time.Time, error) {
	return []byte("null"), epoch, nil
}
func (s *script) Enqueue(_ context.Context, runs []abi.EnqueueParams) ([]abi.EnqueueResult, error) {
	return make([]abi.EnqueueResult, len(runs)), nil
}
func (s *script) Publish(context.Context, abi.PublishParams) error { return nil }
func (s *script) Invoke(context.Context, []abi.EnqueueParams, int) ([]abi.InvokeResult, time.Time, error) {
	return []abi.InvokeResult{{Output: []byte("null")}}, epoch, nil
}
func (s *script) Log(_ context.Context, _ abi.Level, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}
func (s *script) Progress(context.Context, int, string)       {}
func (s *script) Features() abi.Features                      { return 0 }
func (s *script) Compensate(context.Context) (string, error)  { return "", nil }
func (s *script) SQL(context.Context, []byte) ([]byte, error) { return []byte("null"), nil }
