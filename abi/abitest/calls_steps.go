package abitest

import (
	"context"
	"errors"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

var bg = context.Background()

func completedStep(h *callsTest) {
	h.begin(3)
	at := h.step("a", `{"n":1}`)
	if at.IsZero() {
		h.Error("StepEnd answered no instant")
	}
	h.step("b", "null")
	h.again()
	if got := h.replays("a", `{"n":1}`); !got.Equal(at) {
		h.Errorf("the record is of %v, StepEnd said %v", got, at)
	}
	h.replays("b", "null")
	h.step("c", "3")
	h.again()
	h.replays("a", `{"n":1}`)
	h.replays("b", "null")
	h.replays("c", "3")
}

func exactBytes(h *callsTest) {
	const odd = ` {"s":"\u0000\ud800é","n":1e400,"big":12345678901234567890.10,"a":[ ]}`
	h.begin(3)
	h.step("größe #1", odd)
	h.again()
	h.replays("größe #1", odd)
}

func usedNames(h *callsTest) {
	h.begin(3)
	h.step("a", "1")
	_, err := h.calls.StepBegin(bg, "a", 0)
	h.violation(err)

	h.run = nil
	h.begin(3)
	h.step("a", "1")
	_, err = h.calls.Sleep(bg, "a", 1)
	h.violation(err)
}

func stepStates(h *callsTest) {
	h.begin(3)
	_, err := h.calls.StepEnd(bg, []byte("1"))
	h.violation(err)

	h.run = nil
	h.begin(3)
	_, err = h.calls.StepFail(bg, abi.Failure{Message: "m", Kind: abi.FailTerminal})
	h.violation(err)

	h.run = nil
	h.begin(3)
	h.body("outer", 0)
	_, err = h.calls.StepBegin(bg, "inner", 0)
	h.violation(err)
}

func retriedStep(h *callsTest) {
	h.begin(3)
	h.step("a", "1")
	for range 2 {
		h.body("b", 0)
		_, err := h.calls.StepFail(bg, abi.Failure{Message: "not yet"})
		h.unwinds(err)
		h.unwound(err)
		h.replays("a", "1")
	}
	h.step("b", "2")
}

func failedStep(h *callsTest) {
	f := abi.Failure{Kind: abi.FailTerminal, Message: "no \"funds\"", Code: "X_CARD_DECLINED", Fix: "another card"}
	h.begin(3)
	h.body("charge", 0)
	if _, err := h.calls.StepFail(bg, f); err != nil {
		h.Fatalf("a final failure answered %v", err)
	}
	h.step("apologise", "1")
	h.again()
	expectFailed(h, "charge", f)
	h.replays("apologise", "1")
}

func expectFailed(h *callsTest, name string, f abi.Failure) {
	h.Helper()
	b := h.stepBegin(name, 0)
	got, err := wire.ReadFailure(b.Record)
	if b.State != abi.StepFailed || err != nil || got.Message != f.Message || got.Code != f.Code || got.Fix != f.Fix || b.At.IsZero() {
		h.Errorf("StepBegin of %q answered state %d with %s of %v (%v), want its failure", name, b.State, b.Record, b.At, err)
	}
}

func lastAttempt(h *callsTest) {
	f := abi.Failure{Message: "still not", Code: "X_DOWN"}
	h.begin(2)
	h.body("a", 0)
	_, err := h.calls.StepFail(bg, f)
	h.unwinds(err)
	h.unwound(err)
	h.body("a", 0)
	if _, err := h.calls.StepFail(bg, f); err != nil {
		h.Fatalf("the failure of the last attempt answered %v", err)
	}
	h.step("b", "1")
}

func rateLimitedStep(h *callsTest) {
	h.begin(1)
	h.body("a", 0)
	_, err := h.calls.StepFail(bg, abi.Failure{Kind: abi.FailRateLimited, Message: "429", RetryAfter: 1})
	h.unwinds(err)
	h.unwound(err)
	h.step("a", "1")
}

func onceEnded(h *callsTest) {
	h.begin(3)
	h.body("a", abi.StepOnce)
	if _, err := h.calls.StepEnd(bg, []byte("1")); err != nil {
		h.Fatal(err)
	}
	h.again()
	if b := h.stepBegin("a", abi.StepOnce); b.State != abi.StepDone || string(b.Record) != "1" {
		h.Errorf("state %d with %s", b.State, b.Record)
	}
}

func onceFailed(h *callsTest) {
	h.begin(3)
	h.body("a", abi.StepOnce)
	_, err := h.calls.StepFail(bg, abi.Failure{Message: "refused before it took effect"})
	h.unwinds(err)
	h.unwound(err)
	h.body("a", abi.StepOnce)
}

func onceUnknown(h *callsTest) {
	h.begin(3)
	h.body("a", abi.StepOnce)
	h.crash()
	_, err := h.calls.StepBegin(bg, "a", abi.StepOnce)
	h.coded(err, CodeStepOutcomeUnknown)
}

func cutOff(h *callsTest) {
	h.begin(3)
	h.body("a", 0)
	h.crash()
	h.step("a", "1")
}

// crash ends the attempt as a trap in the middle of it does.
func (h *callsTest) crash() {
	h.Helper()
	h.stop(abi.Outcome{
		Kind: abi.Crashed, Err: errors.New("trap"), Failure: abi.Failure{Code: abi.CodeGuestTrap, Message: "the guest trapped"},
	})
}

func diverges(h *callsTest) {
	h.begin(3)
	h.step("a", "1")
	h.step("b", "2")
	h.again()
	h.replays("a", "1")
	_, err := h.calls.StepBegin(bg, "another", 0)
	h.coded(err, CodeReplayDiverged)
}

func ends(h *callsTest) {
	why := errors.New("lease lost")
	ended, cancel := context.WithCancelCause(bg)
	cancel(why)
	for name, call := range map[string]func() error{
		"StepBegin": func() error { _, err := h.calls.StepBegin(ended, "a", 0); return err },
		"Sleep":     func() error { _, err := h.calls.Sleep(ended, "s", 1); return err },
		"Enqueue": func() error {
			_, err := h.calls.Enqueue(ended, []abi.EnqueueParams{{Job: "child", Input: []byte("1")}})
			return err
		},
	} {
		h.run = nil
		h.begin(3)
		if err := call(); !errors.Is(err, why) {
			h.Errorf("%s answered %v, want the context's cause", name, err)
		}
		if sent := h.run.Enqueued(h.T); len(sent) != 0 {
			h.Errorf("%s enqueued %+v", name, sent)
		}
	}
}

// optional: what Features does not announce says so.
func optional(h *callsTest) {
	h.begin(3)
	for _, o := range []struct {
		name string
		bit  abi.Features
		call func() error
	}{
		{"Compensate", abi.FeatureCompensate, func() error { _, err := h.calls.Compensate(bg); return err }},
		{"Invoke", abi.FeatureInvoke, func() error {
			_, _, err := h.calls.Invoke(bg, []abi.EnqueueParams{{Job: "child", Input: []byte("1")}}, 1)
			return err
		}},
		{"Publish", abi.FeaturePublish, func() error { return h.calls.Publish(bg, abi.PublishParams{Topic: "t", Payload: []byte("1")}) }},
		{"SQL", abi.FeatureSQL, func() error { _, err := h.calls.SQL(bg, []byte("{}")); return err }},
		{"WaitEvent", abi.FeatureWaitEvent, func() error {
			_, _, err := h.calls.WaitEvent(bg, abi.WaitParams{Name: "w", Topic: "t", Timeout: 1})
			return err
		}},
	} {
		if h.calls.Features()&o.bit != 0 {
			continue
		}
		var r *abi.Refusal
		if err := o.call(); !errors.As(err, &r) || r.Code != abi.CodeUnsupported {
			h.Errorf("%s answered %v, want CodeUnsupported, since Features does not announce it", o.name, err)
		}
	}
}
