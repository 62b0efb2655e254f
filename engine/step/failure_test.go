package step_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/step"
)

func TestAFailureWithAttemptsLeftUnwindsAndRunsAgain(t *testing.T) {
	a := newRig(t).begin("w1")
	began, err := a.StepBegin(a.ctx, "pay", 0)
	if err != nil || began.State != abi.StepRun {
		t.Fatal(began, err)
	}
	_, err = a.StepFail(a.ctx, abi.Failure{Message: "declined", Code: "X_DECLINED", Fix: "use another card"})
	var again *step.Retry
	if !errors.As(err, &again) || again.Step != "pay" || again.Failure.Code != "X_DECLINED" {
		t.Fatalf("error is %v", err)
	}
	if s := a.steps(); len(s) != 0 {
		t.Errorf("recorded %+v before the settle", s)
	}
	b := a.again(again.Record)
	s := b.steps()
	if len(s) != 1 || s[0].Status != job.StepRetrying || s[0].Attempts != 1 || s[0].Error.Message != "declined" {
		t.Errorf("recorded %+v", s)
	}
	b.do("pay", `"ok"`)
	after := b.steps()[0]
	if after.Status != job.StepCompleted || after.Attempts != 1 || !after.StartedAt.Equal(s[0].StartedAt) || after.Seq != s[0].Seq {
		t.Errorf("the completed record is %+v; began as %+v", after, s[0])
	}
}

func TestAFinalFailureIsRecordedAndReplays(t *testing.T) {
	a := newRig(t).begin("w1")
	if _, err := a.StepBegin(a.ctx, "pay", 0); err != nil {
		t.Fatal(err)
	}
	at, err := a.StepFail(a.ctx, abi.Failure{Kind: abi.FailTerminal, Message: "stolen", Code: "X_STOLEN", Fix: "call us"})
	if err != nil {
		t.Fatalf("a final failure unwinds: %v", err)
	}
	a.do("apologise", `1`) // the handler goes on
	b := a.again(nil)
	begun, err := b.StepBegin(b.ctx, "pay", 0)
	if err != nil || begun.State != abi.StepFailed || !begun.At.Equal(at) {
		t.Fatalf("the replay answers %+v, %v", begun, err)
	}
	for _, want := range []string{`"stolen"`, `"X_STOLEN"`, `"call us"`} {
		if !bytes.Contains(begun.Record, []byte(want)) {
			t.Errorf("the record %s lacks %s", begun.Record, want)
		}
	}
	b.replay("apologise", `1`)
}

func TestAFailureThatCannotBeRecordedKeepsItsWords(t *testing.T) {
	r := newRig(t)
	a := r.begin("w1")
	if _, err := a.StepBegin(a.ctx, "pay", 0); err != nil {
		t.Fatal(err)
	}
	r.db.Between = func(_ context.Context, op string, call func() error) error {
		if op == "SaveSteps" {
			return enginetest.Broken()
		}
		return call()
	}
	_, err := a.StepFail(a.ctx, abi.Failure{Kind: abi.FailTerminal, Message: "stolen"})
	var again *step.Retry
	if !errors.As(err, &again) || again.Failure.Message != "stolen" {
		t.Errorf("error is %v, want the step's own failure", err)
	}
}

func TestAOnceStepThatBeganAndDidNotEndStopsTheRun(t *testing.T) {
	a := newRig(t).begin("w1")
	if _, err := a.StepBegin(a.ctx, "charge", abi.StepOnce); err != nil {
		t.Fatal(err)
	}
	if s := a.steps(); len(s) != 1 || s[0].Status != job.StepStarted {
		t.Fatalf("recorded %+v before the body", s)
	}
	if rec := a.LeftOpen(abi.Failure{Message: "trapped"}); rec != nil {
		t.Errorf("a trap would overwrite the unknown outcome with %+v", rec)
	}
	b := a.again(nil)
	_, err := b.StepBegin(b.ctx, "charge", abi.StepOnce)
	b.code(err, job.CodeStepOutcomeUnknown)
	if !strings.Contains(err.Error(), "charge") {
		t.Errorf("%v does not name the step", err)
	}
}

func TestAOnceStepWhoseFailureWasReportedMayRunAgain(t *testing.T) {
	a := newRig(t).begin("w1")
	if _, err := a.StepBegin(a.ctx, "charge", abi.StepOnce); err != nil {
		t.Fatal(err)
	}
	_, err := a.StepFail(a.ctx, abi.Failure{Message: "no route"})
	var again *step.Retry
	if !errors.As(err, &again) {
		t.Fatal(err)
	}
	b := a.again(again.Record)
	begun, err := b.StepBegin(b.ctx, "charge", abi.StepOnce)
	if err != nil || begun.State != abi.StepRun {
		t.Errorf("%+v, %v", begun, err)
	}
	if s := b.steps(); s[0].Status != job.StepStarted || s[0].Attempts != 1 {
		t.Errorf("recorded %+v", s)
	}
}

func TestAStepCutOffByATrapIsRecordedWithTheSettle(t *testing.T) {
	a := newRig(t).begin("w1")
	if _, err := a.StepBegin(a.ctx, "parse", 0); err != nil {
		t.Fatal(err)
	}
	b := a.again(a.LeftOpen(abi.Failure{Code: abi.CodeGuestTrap, Message: "unreachable"}))
	if s := b.steps(); len(s) != 1 || s[0].Status != job.StepRetrying || s[0].Error.Code != abi.CodeGuestTrap {
		t.Errorf("recorded %+v", s)
	}
	if rec := b.LeftOpen(abi.Failure{}); rec != nil {
		t.Errorf("no step is open, yet %+v", rec)
	}
}

func TestAFailureIsKeptWithinItsBounds(t *testing.T) {
	f := step.Bounded(abi.Failure{
		Code: strings.Repeat("X", 1000), Message: strings.Repeat("é", job.MaxErrorText), Fix: strings.Repeat("f", job.MaxErrorText+1),
		Stack: strings.Repeat("s", job.MaxStack+1),
	})
	if len(f.Code) > 128 || len(f.Message) > job.MaxErrorText || len(f.Fix) > job.MaxErrorText || len(f.Stack) > job.MaxStack {
		t.Errorf("lengths are %d %d %d %d", len(f.Code), len(f.Message), len(f.Fix), len(f.Stack))
	}
	if !strings.HasSuffix(f.Message, "é…") {
		t.Errorf("the message ends in %q", f.Message[len(f.Message)-8:])
	}
}
