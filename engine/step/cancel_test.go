package step_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

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
