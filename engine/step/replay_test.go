package step_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/step"
)

func TestAnythingNewBeforeTheRecordsIsADivergence(t *testing.T) {
	for name, ask := range map[string]func(a *attempt) error{
		"step":    func(a *attempt) error { _, err := a.StepBegin(a.ctx, "new", 0); return err },
		"sleep":   func(a *attempt) error { _, err := a.Sleep(a.ctx, "new", time.Hour); return err },
		"enqueue": func(a *attempt) error { _, err := a.Enqueue(a.ctx, []abi.EnqueueParams{{Job: "child"}}); return err },
	} {
		a := newRig(t).begin("w1")
		a.do("one", `1`)
		a.do("two", `2`)
		b := a.again(nil)
		b.replay("one", `1`)
		err := ask(b)
		b.code(err, job.CodeReplayDiverged)
		if err == nil || !strings.Contains(err.Error(), `"two"`) || strings.Contains(err.Error(), `"one"`) {
			t.Errorf("%s: %v does not name the step that was left out", name, err)
		}
	}
}

func TestReturningWithoutTheRecordsIsADivergence(t *testing.T) {
	a := newRig(t).begin("w1")
	for i := range 6 {
		a.do(fmt.Sprint("s", i), `1`)
	}
	if err := a.Diverged(); err != nil {
		t.Errorf("the first attempt diverges: %v", err)
	}
	b := a.again(nil)
	b.replay("s0", `1`)
	err := b.Diverged()
	b.code(err, job.CodeReplayDiverged)
	if !strings.Contains(err.Error(), `"s1", "s2", "s3" and 2 more`) {
		t.Errorf("%v does not name what was left out", err)
	}
}

func TestANameOfAnotherKindIsADivergence(t *testing.T) {
	a := newRig(t).begin("w1")
	a.do("one", `1`)
	b := a.again(nil)
	_, err := b.Sleep(b.ctx, "one", time.Hour)
	b.code(err, job.CodeReplayDiverged)
}

func TestRecordsMayBeAskedForInAnotherOrder(t *testing.T) {
	a := newRig(t).begin("w1")
	a.do("one", `1`)
	a.do("two", `2`)
	b := a.again(nil)
	b.replay("two", `2`)
	b.replay("one", `1`)
	b.do("three", `3`)
	if err := b.Diverged(); err != nil {
		t.Error(err)
	}
}

func TestAStepToBeRunAgainMayBeGivenUp(t *testing.T) {
	a := newRig(t).begin("w1")
	a.do("one", `1`)
	if _, err := a.StepBegin(a.ctx, "optional", 0); err != nil {
		t.Fatal(err)
	}
	_, err := a.StepFail(a.ctx, abi.Failure{Message: "no"})
	var again *step.Retry
	if !errors.As(err, &again) {
		t.Fatal(err)
	}
	b := a.again(again.Record)
	b.replay("one", `1`)
	b.do("instead", `1`)
	if err := b.Diverged(); err != nil {
		t.Error(err)
	}
}

func TestAnUnknownOutcomeMayNotBeSkipped(t *testing.T) {
	a := newRig(t).begin("w1")
	if _, err := a.StepBegin(a.ctx, "charge", abi.StepOnce); err != nil {
		t.Fatal(err)
	}
	b := a.again(nil)
	b.code(b.Diverged(), job.CodeReplayDiverged)
	_, err := b.StepBegin(b.ctx, "something else", 0)
	b.code(err, job.CodeReplayDiverged)
}

func TestASleepSuspendsOnceAndPassesAfterItsWakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t).begin("w1")
		_, err := a.Sleep(a.ctx, "nap", 20*time.Second)
		var s *step.Suspend
		if !errors.As(err, &s) {
			t.Fatalf("error is %v", err)
		}
		began := time.Now()
		a.settle(job.Slept, job.Suspended, s.Record)
		time.Sleep(20 * time.Second)
		b := a.begin("w1")
		at, err := b.Sleep(b.ctx, "nap", 20*time.Second)
		if err != nil || at.Sub(began) != 20*time.Second {
			t.Errorf("woke at %v (%v after the sleep), %v", at, at.Sub(began), err)
		}
		if b.run.Attempt != 1 {
			t.Errorf("the sleep counted: attempt %d", b.run.Attempt)
		}
		b.do("after", `1`)
		c := b.again(nil)
		again, err := c.Sleep(c.ctx, "nap", time.Hour) // the length of a recorded sleep is the recorded one
		if err != nil || !again.Equal(at) {
			t.Errorf("a later replay wakes at %v, %v; want %v", again, err, at)
		}
	})
}

func TestARunThatIsBackEarlySleepsForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t).begin("w1")
		_, err := a.Sleep(a.ctx, "nap", 25*time.Second)
		var s *step.Suspend
		if !errors.As(err, &s) {
			t.Fatal(err)
		}
		wake := time.Now().Add(25 * time.Second)
		b := a.again(s.Record) // as an operator's requeue would
		time.Sleep(10 * time.Second)
		_, err = b.Sleep(b.ctx, "nap", 25*time.Second)
		if !errors.As(err, &s) || s.Record.Sleep != 0 || s.Record.WakeAt.Sub(wake).Abs() > time.Millisecond {
			t.Fatalf("error is %v with %+v, want a wait until %v", err, s.Record, wake)
		}
		time.Sleep(15*time.Second + time.Millisecond) // the attempt itself outlasts the rest
		c := b.again(nil)
		if _, err := c.Sleep(c.ctx, "nap", 25*time.Second); err != nil {
			t.Errorf("past the wake time: %v", err)
		}
	})
}

func TestASleepOfNoLengthIsOver(t *testing.T) {
	a := newRig(t).begin("w1")
	at := a.do("one", `1`)
	for i, d := range []time.Duration{0, -time.Hour} {
		got, err := a.Sleep(a.ctx, fmt.Sprint(i), d)
		if err != nil || !got.Equal(at) {
			t.Errorf("sleep of %v: %v, %v; want the clock where it stands", d, got, err)
		}
	}
	_, err := a.Sleep(a.ctx, "unit mistake", abi.MaxSleep+1)
	a.refusal(err, abi.CodeLimit)
}

// The run's clock begins where the run did, in whichever attempt: what had passed by it
// in the first has passed in the second, whatever the time is by then. (Z6)
func TestTheRunsClockBeginsAtItsFirstClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t).begin("w1")
		first := a.run.StartedAt
		time.Sleep(20 * time.Second)
		b := a.again(nil)
		if at, err := b.Sleep(b.ctx, "none", 0); err != nil || !at.Equal(first) {
			t.Errorf("the clock is at %v, %v; the run began at %v", at, err, first)
		}
		var s *step.Suspend
		if _, err := b.SleepUntil(b.ctx, "then", first.Add(10*time.Second)); !errors.As(err, &s) {
			t.Errorf("what lies ahead of the run's clock is over: %v", err)
		}
	})
}

func TestASleepKeepsItsRecordWhenItsLengthBecomesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t).begin("w1")
		_, err := a.Sleep(a.ctx, "nap", time.Second)
		var s *step.Suspend
		if !errors.As(err, &s) {
			t.Fatal(err)
		}
		a.settle(job.Slept, job.Suspended, s.Record)
		time.Sleep(2 * time.Second)
		b := a.begin("w1")
		if _, err := b.Sleep(b.ctx, "nap", 0); err != nil {
			t.Fatal(err)
		}
		if err := b.Diverged(); err != nil {
			t.Error(err)
		}
	})
}
