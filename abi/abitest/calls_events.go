package abitest

import (
	"encoding/json"
	"time"

	"github.com/jobrunner/runner/abi"
)

// serves reports whether the engine has the function, once a run has begun.
func (h *callsTest) serves(f abi.Features) bool {
	if h.calls == nil {
		h.begin(3)
	}
	return h.calls.Features()&f != 0
}

func waitParams(name string, timeout time.Duration) abi.WaitParams {
	return abi.WaitParams{Name: name, Topic: "paid", Timeout: timeout}
}

// waits expects that p suspends the run, and settles that.
func (h *callsTest) waits(p abi.WaitParams) {
	h.Helper()
	_, _, err := h.calls.WaitEvent(bg, p)
	h.unwinds(err)
	h.run.End(h.T, abi.Outcome{Kind: abi.Stopped, Err: err})
}

// got expects that p answers the payload.
func (h *callsTest) got(p abi.WaitParams, payload string) time.Time {
	h.Helper()
	b, at, err := h.calls.WaitEvent(bg, p)
	if err != nil || string(b) != payload {
		h.Fatalf("the wait %q answered %s, %v; want %s", p.Name, b, err, payload)
	}
	if at.IsZero() {
		h.Errorf("the answer to %q has no instant", p.Name)
	}
	return at
}

// none expects that p timed out.
func (h *callsTest) none(p abi.WaitParams) time.Time {
	h.Helper()
	_, at, err := h.calls.WaitEvent(bg, p)
	h.refused(err, abi.CodeTimeout)
	if at.IsZero() {
		h.Errorf("the timeout of %q has no instant", p.Name)
	}
	return at
}

func (h *callsTest) publish(payload string) {
	h.Helper()
	h.run.Publish(h.T, abi.PublishParams{Topic: "paid", Payload: []byte(payload)})
}

func waitEnds(h *callsTest) {
	if !h.serves(abi.FeatureWaitEvent) {
		return
	}
	h.step("a", "1")
	h.waits(waitParams("w", time.Hour))
	h.run.Pass(time.Minute)
	h.publish(`{"s":"\u0000"}`)
	h.publish(`2`)
	h.calls = h.run.Begin(h.T)
	h.replays("a", "1")
	at := h.got(waitParams("w", time.Hour), `{"s":"\u0000"}`)
	h.again()
	h.replays("a", "1")
	if again := h.got(waitParams("w", time.Hour), `{"s":"\u0000"}`); !again.Equal(at) {
		h.Errorf("the replay answered at %v, the first time was %v", again, at)
	}
}

func waitTimesOut(h *callsTest) {
	if !h.serves(abi.FeatureWaitEvent) {
		return
	}
	h.waits(waitParams("w", time.Minute))
	h.run.Pass(time.Minute + time.Second)
	h.publish("1")
	h.calls = h.run.Begin(h.T)
	at := h.none(waitParams("w", time.Minute))
	h.again()
	if again := h.none(waitParams("w", time.Minute)); !again.Equal(at) {
		h.Errorf("the replay answered at %v, the first time was %v", again, at)
	}
	// The next wait goes on from there, and finds it.
	h.got(waitParams("x", time.Minute), "1")
}

func waitBegins(h *callsTest) {
	if !h.serves(abi.FeatureWaitEvent) {
		return
	}
	h.publish("1")
	h.run.Pass(time.Second)
	h.waits(waitParams("w", time.Minute))
	h.run.Pass(time.Second)
	h.publish("2")
	h.calls = h.run.Begin(h.T)
	h.got(waitParams("w", time.Minute), "2")
}

func waitGoesOn(h *callsTest) {
	if !h.serves(abi.FeatureWaitEvent) {
		return
	}
	h.none(waitParams("from here", 0))
	h.publish("1")
	h.publish("2")
	h.run.Pass(time.Second)
	h.got(waitParams("a", time.Hour), "1")
	h.step("s", "1")
	h.got(waitParams("b", 0), "2")
	h.waits(waitParams("c", time.Hour))
	h.run.Pass(time.Second)
	h.publish("3")
	h.calls = h.run.Begin(h.T)
	h.none(waitParams("from here", 0))
	h.got(waitParams("a", time.Hour), "1")
	h.replays("s", "1")
	h.got(waitParams("b", 0), "2")
	h.got(waitParams("c", time.Hour), "3")
	h.none(waitParams("d", 0))
}

func waitKey(h *callsTest) {
	if !h.serves(abi.FeatureWaitEvent) {
		return
	}
	a, b := waitParams("a", time.Hour), waitParams("b", time.Hour)
	b.Key = "k"
	h.none(waitParams("from here", 0))
	from := waitParams("from here too", 0)
	from.Key = "k"
	h.none(from)
	h.publish("1")
	h.run.Publish(h.T, abi.PublishParams{Topic: "paid", Key: "k", Payload: []byte("2")})
	h.run.Publish(h.T, abi.PublishParams{Topic: "other", Key: "k", Payload: []byte("3")})
	h.got(b, "2")
	h.got(a, "1")
}

func subscribes(h *callsTest) {
	if !h.serves(abi.FeatureWaitEvent) {
		return
	}
	h.publish("1")
	h.run.Pass(time.Second)
	h.none(waitParams("from here", -1))
	h.publish("2")
	h.got(waitParams("a", 0), "2")
	h.publish("3")
	h.run.Pass(time.Second)
	h.none(waitParams("from here again", -1))
	h.none(waitParams("b", 0))
	h.publish("4")
	h.again()
	h.none(waitParams("from here", -1))
	h.got(waitParams("a", 0), "2")
	h.none(waitParams("from here again", -1))
	h.none(waitParams("b", 0))
	h.got(waitParams("c", 0), "4")
}

func publishInside(h *callsTest) {
	if !h.serves(abi.FeatureWaitEvent) || !h.serves(abi.FeaturePublish) {
		return
	}
	tell := func(payload string) {
		h.Helper()
		if err := h.calls.Publish(bg, abi.PublishParams{Topic: "paid", Payload: []byte(payload)}); err != nil {
			h.Fatal(err)
		}
	}
	h.none(waitParams("from here", 0))
	h.body("s", 0)
	tell("1")
	if _, err := h.calls.StepFail(bg, abi.Failure{Kind: abi.FailTerminal, Message: "no"}); err != nil {
		h.Fatal(err)
	}
	h.none(waitParams("a", 0))
	h.body("t", 0)
	tell("2")
	if _, err := h.calls.StepEnd(bg, []byte("1")); err != nil {
		h.Fatal(err)
	}
	h.got(waitParams("b", 0), "2")
	h.none(waitParams("c", 0))
}

func publishOutside(h *callsTest) {
	if !h.serves(abi.FeatureWaitEvent) || !h.serves(abi.FeaturePublish) {
		return
	}
	tell := func(payload string) {
		h.Helper()
		if err := h.calls.Publish(bg, abi.PublishParams{Topic: "paid", Payload: []byte(payload)}); err != nil {
			h.Fatal(err)
		}
	}
	h.none(waitParams("from here", 0))
	tell("1")
	tell("2")
	h.again()
	h.none(waitParams("from here", 0))
	tell("1")
	tell("2")
	h.got(waitParams("a", 0), "1")
	h.got(waitParams("b", 0), "2")
	h.none(waitParams("c", 0))
}

func three() []abi.EnqueueParams { return append(append(child("1"), child("2")...), child("3")...) }

// invoked expects that the runs end as the inputs say, after some suspensions.
func (h *callsTest) invoked(runs []abi.EnqueueParams, limit, suspensions int) {
	h.Helper()
	h.run.Children(func(c abi.EnqueueParams) ([]byte, *abi.Failure) {
		if string(c.Input) == "2" {
			return nil, &abi.Failure{Code: "X_TWO", Message: "two", Fix: "three"}
		}
		return append([]byte("1"), c.Input...), nil
	})
	for range suspensions {
		_, _, err := h.calls.Invoke(bg, runs, limit)
		h.unwinds(err)
		h.run.End(h.T, abi.Outcome{Kind: abi.Stopped, Err: err})
		h.calls = h.run.Begin(h.T)
	}
	for range 2 { // the second is a replay
		rs, at, err := h.calls.Invoke(bg, runs, limit)
		if err != nil || len(rs) != len(runs) || at.IsZero() {
			h.Fatalf("Invoke of %d answered %+v at %v, %v", len(runs), rs, at, err)
		}
		for i, r := range rs {
			switch in := string(runs[i].Input); {
			case in == "2":
				if f := r.Failure; f == nil || f.Code != "X_TWO" || f.Message != "two" || f.Fix != "three" {
					h.Errorf("child %d ended %+v", i, r)
				}
			case r.Failure != nil || string(r.Output) != "1"+in:
				h.Errorf("child %d ended with %s, %+v", i, r.Output, r.Failure)
			}
		}
		h.again()
	}
}

func invokes(h *callsTest) {
	if !h.serves(abi.FeatureInvoke) {
		return
	}
	h.invoked(three(), 3, 1)
	h.sent("1", "2", "3")
}

func invokesLimited(h *callsTest) {
	if !h.serves(abi.FeatureInvoke) {
		return
	}
	h.invoked(three(), 1, 3)
	h.sent("1", "2", "3")
}

func invokeUnknown(h *callsTest) {
	if !h.serves(abi.FeatureInvoke) {
		return
	}
	_, _, err := h.calls.Invoke(bg, append(child("1"), abi.EnqueueParams{Job: "no-such-job", Input: json.RawMessage("2")}), 1)
	h.refused(err, abi.CodeInvalid)
	h.sent()
	h.step("a", "1")
}

func waitInside(h *callsTest) {
	h.begin(3)
	h.body("a", 0)
	if h.calls.Features()&abi.FeatureWaitEvent != 0 {
		_, _, err := h.calls.WaitEvent(bg, waitParams("w", time.Second))
		h.refused(err, abi.CodeOutsideStepOnly)
	}
	if h.calls.Features()&abi.FeatureInvoke != 0 {
		_, _, err := h.calls.Invoke(bg, child("1"), 1)
		h.refused(err, abi.CodeOutsideStepOnly)
	}
	if _, err := h.calls.StepEnd(bg, []byte("1")); err != nil {
		h.Errorf("the step is not open any more: %v", err)
	}
	h.sent()
}
