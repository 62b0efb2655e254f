package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/worker"
)

func TestASettleThatFailsAfterSuccessIsNeverANack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := 0
		r := newRig(t, handlers{
			"j":    func(*task) (any, error) { bodies++; return bodies, nil },
			"long": func(t *task) (any, error) { t.Work(2 * time.Minute); return nil, nil },
		}, nil)
		var broken atomic.Bool
		broken.Store(true)
		r.db.Between = onOp("Settle", func(_ context.Context, call func() error) error {
			if broken.Load() {
				return enginetest.Broken()
			}
			return call()
		})
		noted := &settles{Store: r.db}
		r.work(func(c *worker.Config) {
			c.Queue = queue.New(queue.Config{Store: noted, Manifest: r.deploy.Manifest})
		})
		long := r.enqueue("long")
		r.reaches(long, job.Running)
		id := r.enqueue("j")
		time.Sleep(time.Second)
		broken.Store(false)
		if outcomes := noted.list(); len(outcomes) != 1 || outcomes[0] != job.Completed {
			t.Errorf("settles asked for: %v", outcomes)
		}
		r.logged("jobs.worker.settle-failed", 1)
		r.ended(r.get(id), job.Running, "", 1) // only a lease may end this claim
		run := r.settles(id)
		if run.State != job.Done || bodies != 2 || run.Attempt != 2 {
			t.Errorf("%s after %d bodies at attempt %d; want it delivered again", run.State, bodies, run.Attempt)
		}
		r.ended(r.get(long), job.Done, "", 1) // its neighbours go on undisturbed
	})
}

func TestARunWhoseSettleNoStoreAcceptsIsBuriedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, policy(func(p *job.RetryPolicy) { p.Attempts = 10 }))
		r.db.Between = onOp("Settle", func(context.Context, func() error) error { return enginetest.Broken() })
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Dead, job.CodeWorkerLost, 3)
	})
}

// settles notes what it is asked to settle.
type settles struct {
	*enginetest.Store
	mu       sync.Mutex
	outcomes []job.Outcome
}

func (s *settles) list() []job.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.outcomes)
}

func (s *settles) Settle(ctx context.Context, b []store.SettleParams) ([]store.SettleResult, error) {
	s.mu.Lock()
	for i := range b {
		s.outcomes = append(s.outcomes, b[i].Outcome)
	}
	s.mu.Unlock()
	return s.Store.Settle(ctx, b)
}

func TestASettleWhoseAnswerWasLostFindsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := 0
		r := newRig(t, handlers{"j": func(*task) (any, error) { bodies++; return bodies, nil }}, nil)
		lost := 3
		r.db.Between = onOp("Settle", func(_ context.Context, call func() error) error {
			if lost > 0 {
				lost--
				return enginetest.Lost(call)
			}
			return call()
		})
		r.work(nil)
		run := r.settles(r.enqueue("j"))
		time.Sleep(time.Minute)
		r.ended(run, job.Done, "", 1)
		r.logged("jobs.settle.unowned", 0)
		if bodies != 1 {
			t.Errorf("%d bodies", bodies)
		}
	})
}

// (R9, R12) One line for each failed attempt, loud only where the run ends.
func TestAFailureIsLoggedAsLoudAsItIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, errors.New("again") }}, nil)
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Dead, "", 3)
		var lines []string
		for _, m := range r.events.Messages() {
			if level, ok := strings.CutSuffix(strings.SplitAfter(m, "jobs.attempt.failed")[0], " jobs.attempt.failed"); ok {
				lines = append(lines, level+" "+fmt.Sprint(strings.Contains(m, "stop=attempts-exhausted")))
			}
		}
		if want := []string{"WARN false", "WARN false", "ERROR true"}; !slices.Equal(lines, want) {
			t.Errorf("logged %q, want %q", lines, want)
		}
	})
}
