package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

func TestAnAttemptIsToldWhatItServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []abi.Attempt
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			seen = append(seen, t.Attempt)
			if len(seen) < 2 {
				return nil, errors.New("again")
			}
			return nil, nil
		}}, nil)
		res, err := r.queue.Enqueue(t.Context(), queue.Request{Job: "j", Input: []byte(`{"n":1}`), Tenant: "acme", Traceparent: "00-a-b-01"})
		r.must(err)
		r.work(nil)
		run := r.settles(res.ID)
		m := seen[0].Meta
		if m.RunID != run.ID || m.Job != "j" || m.Queue != "default" || m.Tenant != "acme" || m.Attempt != 1 || m.MaxAttempts != 3 ||
			m.Traceparent != "00-a-b-01" || m.Module != r.guest.Digest() || !m.EnqueuedAt.Equal(run.CreatedAt) || string(seen[0].Input) != `{"n":1}` {
			t.Errorf("told %+v", seen[0])
		}
		if d := m.Deadline.Sub(run.StartedAt); d < 10*time.Minute || d > 10*time.Minute+time.Second {
			t.Errorf("the deadline is %v after the start", d)
		}
		if seen[1].Meta.Attempt != 2 || seen[1].Seed != seen[0].Seed || !seen[1].Now.Equal(seen[0].Now) || !seen[0].Now.Equal(run.StartedAt) {
			t.Errorf("the second attempt was told %+v, the first %+v: clock and seed are the run's", seen[1], seen[0])
		}
	})
}

func TestHowAHandlerFailsDecidesWhatBecomesOfItsRun(t *testing.T) {
	fail := func(f abi.Failure) enginetest.Handler {
		return func(*task) (any, error) { return nil, &enginetest.Fail{Failure: f} }
	}
	for name, c := range map[string]struct {
		handler enginetest.Handler
		policy  func(*job.RetryPolicy)
		state   job.State
		code    string
		attempt int
		after   time.Duration // at least
	}{
		"retried until none is left": {fail(abi.Failure{Code: "X_MINE", Message: "no"}), nil, job.Dead, "X_MINE", 3, 2 * time.Second},
		"terminal":                   {fail(abi.Failure{Kind: abi.FailTerminal, Code: "X_MINE", Message: "no"}), nil, job.Dead, "X_MINE", 1, 0},
		"no dead letters": {fail(abi.Failure{Message: "no"}), func(p *job.RetryPolicy) { p.Attempts, p.DeadLetter = 2, false },
			job.Failed, "", 2, time.Second},
		"stated wait, clamped": {fail(abi.Failure{Kind: abi.FailRetryAfter, RetryAfter: 2 * time.Hour, Message: "later"}), nil, job.Dead, "", 3, 2 * time.Hour},
		"trap":                 {func(*task) (any, error) { panic("index out of range") }, nil, job.Dead, abi.CodeGuestTrap, 3, 2 * time.Second},
		"broken contract": {func(t *task) (any, error) {
			_, err := t.Step("a", func() (any, error) { return t.Step("b", nil) })
			return nil, err
		}, nil, job.Dead, abi.CodeABIViolation, 1, 0},
		"one name twice": {func(t *task) (any, error) {
			for range 2 {
				if _, err := t.Step("a", func() (any, error) { return 1, nil }); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}, nil, job.Dead, job.CodeStepDuplicate, 1, 0},
		"output that is no JSON":  {func(*task) (any, error) { return raw(`{"a":1,"a":2}`), nil }, nil, job.Dead, job.CodeStepOutput, 1, 0},
		"output that is too long": {func(*task) (any, error) { return raw(`"` + strings.Repeat("x", abi.MaxOutput) + `"`), nil }, nil, job.Dead, job.CodeStepOutput, 1, 0},
		"deadline":                {func(t *task) (any, error) { t.Work(time.Hour); return nil, nil }, nil, job.Dead, job.CodeTimeout, 3, 30 * time.Minute},
		"deadline, then a value": {func(t *task) (any, error) { t.Deaf(10*time.Minute + 5*time.Second); return 1, nil }, func(p *job.RetryPolicy) { p.Attempts = 1 },
			job.Dead, job.CodeTimeout, 1, 10 * time.Minute},
		"step too slow": {func(t *task) (any, error) {
			return t.Step("slow", func() (any, error) { t.Work(time.Hour); return nil, nil })
		}, nil, job.Dead, job.CodeStepTimeout, 3, 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, handlers{"j": c.handler}, policy(func(p *job.RetryPolicy) {
					if c.policy != nil {
						c.policy(p)
					}
				}))
				began := time.Now()
				r.work(nil)
				run := r.settles(r.enqueue("j"))
				r.ended(run, c.state, c.code, c.attempt)
				if took := run.FinishedAt.Sub(began); took < c.after || took > c.after+c.after/4+time.Minute {
					t.Errorf("it took %v, want about %v", took, c.after)
				}
				verdict := strings.HasSuffix(run.Error.Message, "[terminal: not tried again]")
				if verdict != (c.attempt == 1 && c.code != job.CodeTimeout) {
					t.Errorf("the text is %q", run.Error.Message)
				}
				records, err := r.db.Attempts(t.Context(), run.ID)
				if err != nil || len(records) != c.attempt {
					t.Errorf("%d attempts in the timeline, %v", len(records), err)
				}
			})
		})
	}
}

func raw(s string) any { return jsonRaw(s) }

func TestARateLimitedAttemptIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := 0
		r := newRig(t, handlers{"j": func(*task) (any, error) {
			if times++; times <= 5 {
				return nil, &enginetest.Fail{Failure: abi.Failure{Kind: abi.FailRateLimited, RetryAfter: 2 * time.Hour, Message: "slow down"}}
			}
			return nil, nil
		}}, policy(func(p *job.RetryPolicy) { p.Attempts = 1 }))
		began := time.Now()
		r.work(nil)
		run := r.settles(r.enqueue("j"))
		r.ended(run, job.Done, "", 1)
		if took := run.FinishedAt.Sub(began); took < 10*time.Hour {
			t.Errorf("five stated waits of two hours took %v", took)
		}
	})
}

func TestAStepsFailureFollowsTheRunsPolicyAndItsLastIsTheHandlersToHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := 0
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			_, err := t.Step("pay", func() (any, error) { bodies++; return nil, errors.New("declined") })
			if err == nil {
				return nil, errors.New("the step succeeded")
			}
			out, err2 := t.Step("apologise", func() (any, error) { return "sorry: " + err.Error(), nil })
			return out, err2
		}}, nil)
		r.work(nil)
		run := r.settles(r.enqueue("j"))
		if run.State != job.Done || string(run.Output) != `"sorry: declined"` || bodies != 3 || run.Attempt != 3 {
			t.Errorf("%s with %s after %d bodies in %d attempts", run.State, run.Output, bodies, run.Attempt)
		}
		steps, err := r.db.ListSteps(t.Context(), run.ID)
		if err != nil || len(steps) != 2 || steps[0].Status != job.StepFailed || steps[0].Attempts != 3 {
			t.Errorf("steps %+v, %v", steps, err)
		}
	})
}

func TestAStepThatWasCutIsInTheHistoryAndRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			return t.Step("slow", func() (any, error) {
				if t.Attempt.Meta.Attempt == 1 {
					t.Work(time.Hour)
				}
				return "quick", nil
			})
		}}, nil)
		r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Delayed)
		steps, err := r.db.ListSteps(t.Context(), id)
		if err != nil || len(steps) != 1 || steps[0].Status != job.StepRetrying || steps[0].Error.Code != job.CodeStepTimeout {
			t.Errorf("steps %+v, %v", steps, err)
		}
		run := r.settles(id)
		if run.State != job.Done || string(run.Output) != `"quick"` {
			t.Errorf("%s with %s", run.State, run.Output)
		}
	})
}

func TestAOnceStepCutByItsWorkersDeathEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := 0
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			return t.Once("charge", func() (any, error) {
				bodies++
				t.Work(time.Hour)
				return nil, nil
			})
		}}, func(m *manifest.Manifest) { m.Jobs["j"].StepTimeout = 0; m.Jobs["j"].Timeout = 0 })
		first := r.view()
		var cut atomic.Bool
		first.Between = func(ctx context.Context, _ string, call func() error) error {
			if cut.Load() {
				return hang(ctx)
			}
			return call()
		}
		dying := r.work(r.through(first))
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		time.Sleep(time.Second)
		cut.Store(true)
		r.work(nil)
		r.ended(r.settles(id), job.Dead, job.CodeStepOutcomeUnknown, 2)
		if bodies != 1 {
			t.Errorf("%d bodies", bodies)
		}
		cut.Store(false)
		dying.Stop()
	})
}

// panicky panics in the host's own code, not in its guest's.
type panicky struct {
	*enginetest.Guest
	times int
}

func (p *panicky) Run(ctx context.Context, a abi.Attempt, c abi.Calls) abi.Outcome {
	if p.times--; p.times >= 0 {
		panic("nil map in the host")
	}
	return p.Guest.Run(ctx, a, c)
}

func TestAGuestThatItsHostCannotStopDoesNotKeepItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			if t.Attempt.Meta.Attempt == 1 {
				t.Deaf(10 * time.Minute)
				return "late", nil
			}
			return "second", nil
		}}, func(m *manifest.Manifest) {
			m.Jobs["j"].Timeout = time.Minute
			slots(1)(m)
		})
		r.work(nil)
		id := r.enqueue("j")
		time.Sleep(2 * time.Minute)
		r.ended(r.get(id), job.Delayed, job.CodeTimeout, 1) // due, but its slot is still taken
		r.logged("jobs.timeout.abandoned", 1)
		run := r.settles(id)
		if string(run.Output) != `"second"` || run.Attempt != 2 {
			t.Errorf("ended with %s at attempt %d", run.Output, run.Attempt)
		}
		if held := run.ClaimedAt.Sub(run.CreatedAt); held < 10*time.Minute {
			t.Errorf("the second attempt began after %v, beside the guest that has its slot", held)
		}
	})
}

func TestAPanicOfTheHostIsAFailureOfTheAttemptAndNotOfTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, nil)
		d := enginetest.Serve(r.guest, nil)
		d.Guests["m"] = &panicky{Guest: r.guest, times: 1}
		_, err := r.deploy.Switch(d)
		r.must(err)
		r.work(nil)
		id := r.enqueue("j")
		broken := r.reaches(id, job.Delayed)
		r.ended(broken, job.Delayed, abi.CodeHostFailure, 1)
		if !strings.Contains(broken.Error.Message, "nil map") || len(broken.Error.Stack) == 0 || len(broken.Error.Stack) > job.MaxStack {
			t.Errorf("kept %q and a stack of %d", broken.Error.Message, len(broken.Error.Stack))
		}
		r.logged("jobs.attempt.panicked", 1)
		r.ended(r.settles(id), job.Done, abi.CodeHostFailure, 2)
	})
}

func TestARowThatTheManifestNoLongerAcceptsIsDeadWithItsInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": nil}, nil)
		res, err := r.queue.Enqueue(t.Context(), queue.Request{Job: "j", Input: []byte(`{"n":"one"}`)})
		r.must(err)
		_, err = r.deploy.Switch(enginetest.Serve(r.guest, func(m *manifest.Manifest) {
			m.Jobs["j"].Input = enginetest.Schema(t, `{"type":"object","properties":{"n":{"type":"integer"}}}`)
		}))
		r.must(err)
		r.work(nil)
		run := r.settles(res.ID)
		r.ended(run, job.Dead, job.CodeInputInvalid, 1)
		if string(run.Input) != `{"n":"one"}` || r.guest.Started() != 0 {
			t.Errorf("input %s, %d attempts began", run.Input, r.guest.Started())
		}
	})
}

func TestARowOfAnotherTenantThanItsInputNeverRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, func(m *manifest.Manifest) {
			m.Jobs["j"].Tenant = enginetest.Tenant("{org}")
		})
		insert := func(tenant, input string) string {
			res, err := r.db.Enqueue(t.Context(), []store.EnqueueParams{{
				ID: newID(), Job: "j", Queue: "default", Tenant: tenant, Key: newID(), Input: []byte(input), MaxAttempts: 5,
			}})
			r.must(err)
			return res[0].ID
		}
		forged := insert("a", `{"org":"b"}`)
		nobody := insert("a", `{}`)
		system := insert("", `{"org":"b"}`)
		r.work(nil)
		r.ended(r.settles(forged), job.Dead, job.CodeTenantMismatch, 1)
		r.ended(r.settles(nobody), job.Dead, job.CodeKeyInvalid, 1)
		r.ended(r.settles(system), job.Done, "", 1)
		if n := r.guest.Started(); n != 1 {
			t.Errorf("%d attempts began, want the untenanted row's only", n)
		}
	})
}

func TestSuspendedRunsHoldNoGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			v, err := t.Step("one", func() (any, error) { return t.Attempt.Meta.RunID, nil })
			if err != nil {
				return nil, err
			}
			return v, t.Sleep("three days", 72*time.Hour)
		}}, nil)
		requests := make([]queue.Request, 1000)
		for i := range requests {
			requests[i] = queue.Request{Job: "j"}
		}
		results, err := r.queue.EnqueueMany(t.Context(), requests)
		r.must(err)
		r.work(nil)
		time.Sleep(time.Hour)
		stats, err := r.db.Stats(t.Context())
		r.must(err)
		if q := stats.Queues[0]; q.Suspended != 1000 || r.guest.Running() != 0 {
			t.Errorf("%d suspended, %d guests held", q.Suspended, r.guest.Running())
		}
		time.Sleep(72 * time.Hour)
		for _, res := range results {
			if run := r.get(res.ID); run.State != job.Done || run.Attempt != 1 || string(run.Output) != `"`+res.ID+`"` {
				t.Fatalf("run %+v", run)
			}
		}
	})
}

func TestProgressIsInTheSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			t.Calls.Progress(t.Context, 250, "a quarter")
			t.Calls.Progress(t.Context, 750, "most")
			return nil, nil
		}}, nil)
		r.work(nil)
		if p := r.settles(r.enqueue("j")).Progress; p.Permille != 750 || p.Note != "most" {
			t.Errorf("progress %+v", p)
		}
	})
}
