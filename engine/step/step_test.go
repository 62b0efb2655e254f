package step_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/step"
	"github.com/jobrunner/runner/engine/store"
)

func TestACompletedStepIsDurableAndReplaysForEver(t *testing.T) {
	a := newRig(t).begin("w1")
	at := a.do("one", `{"id":7}`)
	if s := a.steps(); len(s) != 1 || s[0].Status != job.StepCompleted || string(s[0].Output) != `{"id":7}` {
		t.Errorf("recorded %+v before the call returned", s)
	}
	b := a.again(nil)
	if got := b.replay("one", `{"id":7}`); !got.Equal(at) {
		t.Errorf("the replay's instant is %s, the first was %s", got, at)
	}
	if b.run.Module != "digest" {
		t.Errorf("the run is pinned to %q", b.run.Module)
	}
}

func TestAStepWithoutOutputRecordsNull(t *testing.T) {
	a := newRig(t).begin("w1")
	if _, err := a.StepBegin(a.ctx, "one", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := a.StepEnd(a.ctx, nil); err != nil {
		t.Fatal(err)
	}
	a.again(nil).replay("one", `null`)
}

func TestOneNameTwiceInAnAttemptIsAViolation(t *testing.T) {
	a := newRig(t).begin("w1")
	for i := range 300 {
		a.do(fmt.Sprint(i), `1`)
	}
	_, err := a.StepBegin(a.ctx, "0", 0)
	a.violation(err)
	a.code(err, job.CodeStepDuplicate)
	_, err = a.Sleep(a.ctx, "1", time.Hour)
	a.code(err, job.CodeStepDuplicate)
}

func TestAStepInsideAStepIsAViolation(t *testing.T) {
	a := newRig(t).begin("w1")
	if _, err := a.StepBegin(a.ctx, "outer", 0); err != nil {
		t.Fatal(err)
	}
	_, err := a.StepBegin(a.ctx, "inner", 0)
	a.violation(err)
	_, err = a.Sleep(a.ctx, "nap", time.Hour)
	a.refusal(err, abi.CodeOutsideStepOnly)
}

func TestAnEndWithoutABeginIsAViolation(t *testing.T) {
	a := newRig(t).begin("w1")
	_, err := a.StepEnd(a.ctx, nil)
	a.violation(err)
	_, err = a.StepFail(a.ctx, abi.Failure{})
	a.violation(err)
}

func TestALateResumeReadsItsHistoryOnce(t *testing.T) {
	const n = 4800
	r := newRig(t)
	a := r.begin("w1")
	batch := make([]store.StepParams, n)
	for i := range batch {
		batch[i] = store.StepParams{Ref: a.ref, Name: fmt.Sprint("s", i), Kind: job.KindStep, Status: job.StepCompleted, Output: []byte(`1`)}
	}
	if _, err := r.db.Store.SaveSteps(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	b := a.again(nil)
	for i := range n {
		b.replay(fmt.Sprint("s", i), `1`)
	}
	if lists, writes := r.db.Count("ListSteps"), r.db.Count("SaveSteps"); lists != 1 || writes != 0 {
		t.Errorf("%d lists and %d writes for %d replayed steps; want 1 and 0", lists, writes, n)
	}
	if b.Replaying() {
		t.Error("still replaying after the last record")
	}
}

func TestARunWithoutHistoryReadsNone(t *testing.T) {
	r := newRig(t)
	r.begin("w1")
	if n := r.db.Count("ListSteps"); n != 0 {
		t.Errorf("%d lists", n)
	}
}

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

func TestAStepWhoseEndMayBeRecordedIsNotOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.begin("w1")
		a.open("send")
		a.enqueue(child("1"))
		tries := 0
		r.db.Between = func(_ context.Context, op string, call func() error) error {
			if op != "SaveSteps" {
				return call()
			}
			if tries++; tries == 1 {
				return enginetest.Lost(call)
			}
			return enginetest.Broken()
		}
		_, err := a.StepEnd(a.ctx, []byte(`1`))
		if !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("error is %v", err)
		}
		if rec := a.LeftOpen(abi.Failure{Message: "the store is full"}); rec != nil {
			t.Errorf("the settle would overwrite the record with %+v", rec)
		}
		r.db.Between = nil
		b := a.again(nil)
		b.replay("send", `1`)
		if n := len(b.children()); n != 1 {
			t.Errorf("%d children", n)
		}
	})
}

func TestAnOutputThatCannotBeRecordedIsRefused(t *testing.T) {
	for _, out := range []string{`{`, `{"a":1,"a":2}`, "\"\xff\"", `"` + strings.Repeat("x", abi.MaxOutput) + `"`} {
		a := newRig(t).begin("w1")
		if _, err := a.StepBegin(a.ctx, "one", 0); err != nil {
			t.Fatal(err)
		}
		_, err := a.StepEnd(a.ctx, []byte(out))
		a.code(err, job.CodeStepOutput)
		if s := a.steps(); len(s) != 0 {
			t.Errorf("recorded %+v", s)
		}
	}
}

func TestAStepThatTakesTooLongEndsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t).begin("w1")
		for range 3 { // the timer of an earlier step does not hit a later one
			if _, err := a.StepBegin(a.ctx, time.Now().String(), 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Second)
			if _, err := a.StepEnd(a.ctx, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if a.ctx.Err() != nil {
			t.Fatalf("cut outside a step: %v", context.Cause(a.ctx))
		}
		if _, err := a.StepBegin(a.ctx, "slow", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second)
		a.code(context.Cause(a.ctx), job.CodeStepTimeout)
		if !strings.Contains(context.Cause(a.ctx).Error(), "slow") {
			t.Errorf("%v does not name the step", context.Cause(a.ctx))
		}
		_, err := a.StepEnd(a.ctx, []byte(`1`))
		a.code(err, job.CodeStepTimeout)
		if s := a.steps(); len(s) != 3 {
			t.Errorf("%d records; the cut step wrote one", len(s))
		}
	})
}

func TestACancelledAttemptWritesNothingMore(t *testing.T) {
	for _, code := range []string{job.CodeCancelled, job.CodeLeaseLost, job.CodeTimeout, job.CodeDraining} {
		r := newRig(t)
		a := r.begin("w1")
		a.cancel(&abi.Error{Code: code})
		_, err := a.StepBegin(a.ctx, "one", abi.StepOnce)
		a.code(err, code)
		_, err = a.Sleep(a.ctx, "nap", time.Hour)
		a.code(err, code)
		_, err = a.Enqueue(a.ctx, []abi.EnqueueParams{{Job: "child"}})
		a.code(err, code)
		if n := r.db.Count("SaveSteps"); n != 0 {
			t.Errorf("%s: %d writes", code, n)
		}
	}
}

func TestAStepThatEndsDuringADrainIsRecorded(t *testing.T) {
	a := newRig(t).begin("w1")
	if _, err := a.StepBegin(a.ctx, "one", 0); err != nil {
		t.Fatal(err)
	}
	a.cancel(draining())
	if _, err := a.StepEnd(a.ctx, []byte(`1`)); err != nil {
		t.Fatal(err)
	}
	if s := a.steps(); len(s) != 1 || s[0].Status != job.StepCompleted {
		t.Errorf("recorded %+v", s)
	}
	_, err := a.StepBegin(a.ctx, "two", 0)
	a.code(err, job.CodeDraining)
}

func TestAStepThatEndsAfterAnotherCauseIsNotRecorded(t *testing.T) {
	for _, code := range []string{job.CodeCancelled, job.CodeLeaseLost, job.CodeTimeout} {
		a := newRig(t).begin("w1")
		if _, err := a.StepBegin(a.ctx, "one", 0); err != nil {
			t.Fatal(err)
		}
		a.cancel(&abi.Error{Code: code})
		_, err := a.StepEnd(a.ctx, []byte(`1`))
		a.code(err, code)
		if s := a.steps(); len(s) != 0 {
			t.Errorf("%s: recorded %+v", code, s)
		}
	}
}

func TestAWriteUnderAStaleClaimMissesAndEndsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stale := r.begin("w1")
		if _, err := stale.StepBegin(stale.ctx, "one", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(31 * time.Second) // w1's lease lapses
		r.register("w2")
		if _, err := r.db.Reclaim(t.Context(), store.ReclaimParams{Limit: 10}); err != nil {
			t.Fatal(err)
		}
		fresh := r.begin("w2")
		_, err := stale.StepEnd(stale.ctx, []byte(`"stale"`))
		r.code(err, job.CodeLeaseLost)
		r.code(context.Cause(stale.ctx), job.CodeLeaseLost)
		fresh.do("one", `"fresh"`)
		if s := r.steps(); len(s) != 1 || string(s[0].Output) != `"fresh"` {
			t.Errorf("recorded %+v", s)
		}
	})
}

func TestARunHasAtMostMaxStepsRecords(t *testing.T) {
	r := newRig(t)
	a := r.begin("w1")
	batch := make([]store.StepParams, abi.MaxSteps-1)
	for i := range batch {
		batch[i] = store.StepParams{Ref: a.ref, Name: fmt.Sprint(i), Kind: job.KindStep, Status: job.StepCompleted, Output: []byte(`1`)}
	}
	if _, err := r.db.Store.SaveSteps(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	b := a.again(nil)
	for i := range batch {
		b.replay(fmt.Sprint(i), `1`)
	}
	b.do("the last", `1`)
	_, err := b.StepBegin(b.ctx, "one more", 0)
	b.code(err, job.CodeStepsExceeded)
	_, err = b.Sleep(b.ctx, "a sleep more", time.Hour)
	b.code(err, job.CodeStepsExceeded)
	_, err = b.Enqueue(b.ctx, []abi.EnqueueParams{{Job: "child"}})
	b.code(err, job.CodeStepsExceeded)
}

// What a run has recorded is in memory whenever it runs again: in this attempt
// and in the next, outputs and failures alike.
func TestARunRecordsAtMostSoManyBytes(t *testing.T) {
	mib := []byte(`"` + strings.Repeat("x", abi.MaxOutput-2) + `"`)
	r := newRig(t)
	a := r.begin("w1")
	const half = abi.MaxRecorded / abi.MaxOutput / 2
	for i := range half {
		a.do(fmt.Sprint(i), string(mib))
	}
	b := a.again(nil)
	for i := range half {
		b.replay(fmt.Sprint(i), string(mib))
	}
	for i := half; i < 2*half; i++ { // the last of them goes beyond, by the names
		b.do(fmt.Sprint(i), string(mib))
	}
	full := func(a *attempt) {
		t.Helper()
		_, err := a.StepBegin(a.ctx, "one more", 0)
		r.code(err, job.CodeStepsExceeded)
		_, err = a.Sleep(a.ctx, "a sleep more", time.Hour)
		r.code(err, job.CodeStepsExceeded)
		_, err = a.Enqueue(a.ctx, []abi.EnqueueParams{{Job: "child"}})
		r.code(err, job.CodeStepsExceeded)
	}
	full(b)
	c := b.again(nil)
	for i := range 2 * half {
		c.replay(fmt.Sprint(i), string(mib))
	}
	full(c)
}

func TestLinesOfCoveredGroundAreDropped(t *testing.T) {
	r := newRig(t)
	var out bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&out, nil))
	a := r.begin("w1")
	a.Log(a.ctx, abi.LevelInfo, "before one")
	a.do("one", `1`)
	if _, err := a.StepBegin(a.ctx, "two", 0); err != nil {
		t.Fatal(err)
	}
	a.Log(a.ctx, abi.LevelWarn, "inside two")
	a.Log(a.ctx, abi.LevelDebug, "too quiet")
	first := out.String()
	for _, want := range []string{"level=INFO msg=\"before one\"", "level=WARN msg=\"inside two\"", "run=" + r.runID, "job=parent", "attempt=1", "step=two"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q lacks %q", first, want)
		}
	}
	out.Reset()
	b := a.again(nil)
	b.Log(b.ctx, abi.LevelInfo, "before one")
	b.replay("one", `1`)
	b.Log(b.ctx, abi.LevelInfo, "after one")
	if got := out.String(); strings.Contains(got, "before one") || !strings.Contains(got, "after one") || !strings.Contains(got, "attempt=2") {
		t.Errorf("the second attempt wrote %q", got)
	}
}

// A handler that logs without end writes no more than one that logs a lot, short
// lines or long ones; what is not written does not count.
func TestAnAttemptLogsSoMuchAndNoMore(t *testing.T) {
	for _, line := range []string{"", strings.Repeat("x", 1000), strings.Repeat("x", 2*abi.MaxLogLine)} {
		r := newRig(t)
		var out bytes.Buffer
		r.log = slog.New(slog.NewTextHandler(&out, nil))
		a := r.begin("w1")
		a.do("one", `1`)
		for range 2 * abi.MaxLog / abi.LogLineCost {
			a.Log(a.ctx, abi.LevelDebug, line)
			a.Log(a.ctx, abi.LevelInfo, line)
		}
		if n := strings.Count(out.String(), "log truncated"); n != 1 || out.Len() < abi.MaxLog/2 || out.Len() > 2*abi.MaxLog {
			t.Errorf("lines of %d bytes: %d bytes are written, and %d times that there are more", len(line), out.Len(), n)
		}

		out.Reset()
		b := a.again(nil)
		for range 2 * abi.MaxLog / abi.LogLineCost {
			b.Log(b.ctx, abi.LevelInfo, line) // covered ground
		}
		b.replay("one", `1`)
		b.Log(b.ctx, abi.LevelInfo, "the next attempt logs again")
		if !strings.Contains(out.String(), "the next attempt logs again") {
			t.Error("the next attempt logs nothing")
		}
	}
}

func TestProgressKeepsTheLatestUsableReport(t *testing.T) {
	a := newRig(t).begin("w1")
	if a.LastProgress() != nil {
		t.Error("progress without a report")
	}
	a.Progress(a.ctx, 100, "a tenth")
	a.Progress(a.ctx, 500, strings.Repeat("é", 200))
	a.Progress(a.ctx, 1001, "no share")
	a.Progress(a.ctx, -1, "no share")
	p := a.LastProgress()
	if p == nil || p.Permille != 500 || len(p.Note) > abi.MaxProgressNote || !strings.HasPrefix(p.Note, "éé") {
		t.Errorf("progress is %+v", p)
	}
}

func TestWhatIsNotServedYetIsRefused(t *testing.T) {
	a := newRig(t).begin("w1")
	if a.Features() != 0 {
		t.Errorf("features %b are announced", a.Features())
	}
	_, _, err := a.WaitEvent(a.ctx, "w", "t", time.Hour)
	a.refusal(err, abi.CodeUnsupported)
	_, _, err = a.Invoke(a.ctx, abi.EnqueueParams{})
	a.refusal(err, abi.CodeUnsupported)
	a.refusal(a.Publish(a.ctx, "t", nil), abi.CodeUnsupported)
	a.refusal(a.Compensate(a.ctx, "s"), abi.CodeUnsupported)
	_, err = a.SQL(a.ctx, nil)
	a.refusal(err, abi.CodeUnsupported)
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
