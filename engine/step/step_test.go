package step_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
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
	if v, ok := err.(*abi.Violation); !ok || v.Fix == "" { // it is the handler's code, not its SDK
		t.Errorf("what to do is not said: %v", err)
	}
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
	_, _, err := b.Invoke(b.ctx, []abi.EnqueueParams{{Job: "child"}, {Job: "child"}}, 1) // refused before the first is made
	b.code(err, job.CodeStepsExceeded)
	b.do("the last", `1`)
	_, err = b.StepBegin(b.ctx, "one more", 0)
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

func TestWhatIsNotServedYetIsRefused(t *testing.T) {
	a := newRig(t).begin("w1")
	if a.Features()&(abi.FeatureCompensate|abi.FeatureSQL) != 0 {
		t.Errorf("features %b are announced", a.Features())
	}
	_, err := a.Compensate(a.ctx)
	a.refusal(err, abi.CodeUnsupported)
	_, err = a.SQL(a.ctx, nil)
	a.refusal(err, abi.CodeUnsupported)
}
