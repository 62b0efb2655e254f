package worker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
)

// ownPolicy gives the step "call" a policy of its own.
func ownPolicy(timeout time.Duration, attempts int) func(*manifest.Manifest) {
	return func(m *manifest.Manifest) {
		m.Jobs["j"].Retry.Attempts = 10
		m.Jobs["j"].Steps = map[string]manifest.StepPolicy{"call": {
			Timeout: timeout,
			Retry:   &job.RetryPolicy{Attempts: attempts, Backoff: job.BackoffFixed, Delay: 7 * time.Second, MaxDelay: time.Minute, DeadLetter: true},
		}}
	}
}

// A step whose own policy is used up is handed to the handler, which may go on
// otherwise, though the run has attempts left; it waits as its policy says.
func TestAStepIsTriedAsItsOwnPolicySays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			_, err := t.Step("call", func() (any, error) { tries++; return nil, errors.New("no answer") })
			if err != nil {
				return "by mail instead", nil
			}
			return nil, nil
		}}, ownPolicy(time.Minute, 3))
		r.work(nil)
		began := time.Now()
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 3)
		if tries != 3 {
			t.Errorf("%d tries, want 3", tries)
		}
		if took := time.Since(began).Truncate(time.Second); took < 14*time.Second || took > 16*time.Second {
			t.Errorf("took %v in the test's time, want two waits of 7s", took)
		}
	})
}

func TestAStepThatTimesOutAsOftenAsItsPolicyAllowsHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			_, err := t.Step("call", func() (any, error) {
				tries++
				t.Work(time.Hour)
				return nil, nil
			})
			if err != nil {
				return "by mail instead", nil
			}
			return nil, nil
		}}, ownPolicy(time.Second, 2))
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Done, "X_STEP_TIMEOUT", 3)
		if tries != 2 {
			t.Errorf("%d tries, want 2", tries)
		}
	})
}

// The run's attempts stay the ceiling.
func TestAStepsPolicyGivesARunNoMoreAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			return t.Step("call", func() (any, error) { return nil, errors.New("no answer") })
		}}, func(m *manifest.Manifest) {
			ownPolicy(time.Minute, 5)(m)
			m.Jobs["j"].Retry.Attempts = 2
		})
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Dead, "", 2)
	})
}
