package abitest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
)

// guestFunc is an abi.Guest made of a Go func.
type guestFunc func(ctx context.Context, a abi.Attempt, calls abi.Calls) abi.Outcome

func (guestFunc) Digest() string            { return "" }
func (guestFunc) Describe() abi.Description { return abi.Description{} }
func (f guestFunc) Run(ctx context.Context, a abi.Attempt, calls abi.Calls) abi.Outcome {
	return f(ctx, a, calls)
}

func stopped(err error) abi.Outcome { return abi.Outcome{Kind: abi.Stopped, Err: err} }

func TestDriveRunsAttemptsUntilTheRunIsSettled(t *testing.T) {
	m := NewMemory(Config{MaxAttempts: 3})
	out := Drive(context.Background(), guestFunc(func(ctx context.Context, a abi.Attempt, calls abi.Calls) abi.Outcome {
		begun, err := calls.StepBegin(ctx, "flaky", 0)
		if err != nil {
			return stopped(err)
		}
		if begun.State == abi.StepRun {
			if a.Meta.Attempt < 3 {
				if _, err := calls.StepFail(ctx, abi.Failure{Message: "not yet"}); err != nil {
					return stopped(err)
				}
			}
			if _, err := calls.StepEnd(ctx, []byte("1")); err != nil {
				return stopped(err)
			}
		}
		if _, err := calls.Sleep(ctx, "rest", time.Hour); err != nil {
			return stopped(err)
		}
		return abi.Outcome{Kind: abi.Done, Output: []byte(`"ok"`)}
	}), m, "h", nil)
	if out.Kind != abi.Done {
		t.Fatalf("%+v", out)
	}
	want := []string{
		`step_begin "flaky"`, `step_fail "flaky" 0 not yet`,
		`step_begin "flaky"`, `step_fail "flaky" 0 not yet`,
		`step_begin "flaky"`, `step_end "flaky" 1`, `sleep "rest" 1h0m0s`,
		`step_begin "flaky"`, `sleep "rest" 1h0m0s`,
	}
	if got := m.Transcript(); !slices.Equal(got, want) {
		t.Errorf("transcript %q", got)
	}
	// One second after the first failure, two after the second.
	if want := m.cfg.Start.Add(3*time.Second + time.Hour); !m.Now().Equal(want) {
		t.Errorf("clock %v, want %v", m.Now(), want)
	}
	if m.Number() != 3 || m.Runs() != 4 {
		t.Errorf("attempt %d, runs %d; want 3 and 4: the sleep is not counted", m.Number(), m.Runs())
	}
}

func TestRateLimitIsNeitherCountedNorFinal(t *testing.T) {
	m := NewMemory(Config{MaxAttempts: 1})
	out := Drive(context.Background(), guestFunc(func(_ context.Context, a abi.Attempt, _ abi.Calls) abi.Outcome {
		if m.Runs() < 5 {
			return abi.Outcome{Kind: abi.Failed, Failure: abi.Failure{Kind: abi.FailRateLimited, RetryAfter: time.Minute}}
		}
		return abi.Outcome{Kind: abi.Done}
	}), m, "h", nil)
	if out.Kind != abi.Done || m.Number() != 1 || m.Now().Sub(m.cfg.Start) != 4*time.Minute {
		t.Errorf("%v in attempt %d after %v", out.Kind, m.Number(), m.Now().Sub(m.cfg.Start))
	}
}

func TestReplayThatAsksForOtherStepsIsReported(t *testing.T) {
	m := NewMemory(Config{})
	out := Drive(context.Background(), guestFunc(func(ctx context.Context, a abi.Attempt, calls abi.Calls) abi.Outcome {
		name := "a"
		if a.Meta.Attempt == 2 {
			name = "b"
		}
		if _, err := calls.StepBegin(ctx, name, 0); err != nil {
			return stopped(err)
		}
		if _, err := calls.StepEnd(ctx, []byte("1")); err != nil {
			return stopped(err)
		}
		return abi.Outcome{Kind: abi.Failed, Failure: abi.Failure{Message: "again"}}
	}), m, "h", nil)
	if out.Kind != abi.Stopped || abi.CodeOf(out.Err) != CodeReplayDiverged {
		t.Errorf("%v: %v", out.Kind, out.Err)
	}
}

func TestEventsArriveInTheirOrderAndOnce(t *testing.T) {
	m := NewMemory(Config{Events: []Event{{Topic: "paid", Payload: []byte("1"), After: 0}, {Topic: "paid", Payload: []byte("2"), After: time.Minute}}})
	var got []string
	out := Drive(context.Background(), guestFunc(func(ctx context.Context, _ abi.Attempt, calls abi.Calls) abi.Outcome {
		got = nil
		for _, name := range []string{"w1", "w2", "w3"} {
			b, _, err := calls.WaitEvent(ctx, abi.WaitParams{Name: name, Topic: "paid", Timeout: time.Hour})
			var r *abi.Refusal
			if errors.As(err, &r) {
				got = append(got, "timeout")
				continue
			}
			if err != nil {
				return stopped(err)
			}
			got = append(got, string(b))
		}
		return abi.Outcome{Kind: abi.Done}
	}), m, "h", nil)
	if want := []string{"1", "2", "timeout"}; out.Kind != abi.Done || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", out.Kind, got, want)
	}
	if d := m.Now().Sub(m.cfg.Start); d != time.Minute+time.Hour {
		t.Errorf("took %v", d)
	}
}

func TestCancelledContextUnwindsWithItsCause(t *testing.T) {
	m := NewMemory(Config{})
	m.Attempt("h", nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("lease lost")
	cancel(why)
	if _, err := m.StepBegin(ctx, "a", 0); err != why {
		t.Errorf("%v", err)
	}
}

// memoryRun drives a Memory as TestCalls drives an engine.
type memoryRun struct{ m *Memory }

func (r memoryRun) Begin(testing.TB) abi.Calls {
	r.m.Attempt("h", nil)
	return r.m
}

func (r memoryRun) End(tb testing.TB, out abi.Outcome) {
	var s *Suspended
	if errors.As(out.Err, &s) && s.For == abi.FuncWaitEvent {
		return // the kit, not Memory, lets time go by until there is an event
	}
	if !r.m.Settle(out) {
		tb.Errorf("the run is settled with %v", out.Kind)
	}
}

func (r memoryRun) Pass(d time.Duration) { r.m.Advance(d) }

func (r memoryRun) Enqueued(testing.TB) []abi.EnqueueParams {
	var ps []abi.EnqueueParams
	for _, s := range r.m.Sent() {
		if s.Topic == "" {
			ps = append(ps, s.Run)
		}
	}
	return ps
}

func (r memoryRun) Publish(_ testing.TB, e abi.PublishParams) { r.m.Deliver(e) }

func (r memoryRun) Children(end func(abi.EnqueueParams) ([]byte, *abi.Failure)) { r.m.cfg.Invoke = end }

func TestMemoryKeepsTheContract(t *testing.T) {
	TestCalls(t, func(_ testing.TB, p RunParams) Run {
		return memoryRun{NewMemory(Config{MaxAttempts: p.MaxAttempts, Jobs: []string{"child"}})}
	})
}
