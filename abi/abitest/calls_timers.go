package abitest

import (
	"encoding/json"
	"time"

	"github.com/jobrunner/runner/abi"
)

func sleeps(h *callsTest) {
	const nap = time.Hour
	h.begin(3)
	began := h.step("a", "1")
	_, err := h.calls.Sleep(bg, "nap", nap)
	h.unwinds(err)
	h.run.End(h.T, abi.Outcome{Kind: abi.Stopped, Err: err})
	h.run.Pass(nap)
	h.calls = h.run.Begin(h.T)
	h.replays("a", "1")
	woke, err := h.calls.Sleep(bg, "nap", nap)
	if err != nil {
		h.Fatalf("after its time: %v", err)
	}
	if woke.Before(began.Add(nap)) {
		h.Errorf("woke at %v, which is less than %v after %v", woke, nap, began)
	}
	h.step("b", "2")
	h.again()
	h.replays("a", "1")
	again, err := h.calls.Sleep(bg, "nap", 2*nap)
	if err != nil || !again.Equal(woke) {
		h.Errorf("the replay answered %v, %v; want %v, whatever it asks for now", again, err, woke)
	}
	h.replays("b", "2")
}

// A sleep until an instant is one record, which replays like any sleep's.
func sleepsUntil(h *callsTest) {
	const nap = time.Hour
	h.begin(3)
	began := h.step("a", "1")
	h.run.Pass(time.Minute) // the run's clock lags, and must not count
	t := began.Add(nap).Truncate(time.Millisecond)
	_, err := h.calls.SleepUntil(bg, "nap", t)
	h.unwinds(err)
	h.run.End(h.T, abi.Outcome{Kind: abi.Stopped, Err: err})
	h.run.Pass(nap)
	h.calls = h.run.Begin(h.T)
	h.replays("a", "1")
	for range 2 {
		// Whatever a replay asks for now.
		woke, err := h.calls.SleepUntil(bg, "nap", t.Add(nap))
		if err != nil || !woke.Equal(t) {
			h.Fatalf("woke at %v, want %v: %v", woke, t, err)
		}
		if past, err := h.calls.SleepUntil(bg, "past", began.Add(-nap)); err != nil || past.Before(t) {
			h.Errorf("an instant that has passed: %v, %v", past, err)
		}
		h.again()
		h.replays("a", "1")
	}
}

// An instant that has passed, though not by the run's clock, makes no long sleep.
func sleepsUntilLate(h *callsTest) {
	h.begin(3)
	began := h.step("a", "1")
	h.run.Pass(time.Hour)
	t := began.Add(time.Minute).Truncate(time.Millisecond)
	woke, err := h.calls.SleepUntil(bg, "nap", t)
	if err != nil {
		h.unwinds(err)
		h.unwound(err)
		h.replays("a", "1")
		if woke, err = h.calls.SleepUntil(bg, "nap", t); err != nil {
			h.Fatal(err)
		}
	}
	if woke.Before(t) {
		h.Errorf("woke at %v, before %v", woke, t)
	}
	h.step("b", "2")
}

func noSleep(h *callsTest) {
	h.begin(3)
	if _, err := h.calls.Sleep(bg, "nap", 0); err != nil {
		h.Errorf("%v", err)
	}
	h.step("a", "1")
}

func sleepInside(h *callsTest) {
	h.begin(3)
	h.body("a", 0)
	_, err := h.calls.Sleep(bg, "nap", time.Second)
	h.refused(err, abi.CodeOutsideStepOnly)
	if _, err := h.calls.StepEnd(bg, []byte("1")); err != nil {
		h.Errorf("the step is not open any more: %v", err)
	}
}

func clock(h *callsTest) {
	h.begin(3)
	a := h.step("a", "1")
	h.run.Pass(time.Minute)
	b := h.step("b", "2")
	if b.Before(a) {
		h.Errorf("b is recorded at %v, before a at %v", b, a)
	}
	h.again()
	if x, y := h.replays("a", "1"), h.replays("b", "2"); !x.Equal(a) || !y.Equal(b) {
		h.Errorf("replayed as %v and %v, recorded at %v and %v", x, y, a, b)
	}
}

func child(input string) []abi.EnqueueParams {
	return []abi.EnqueueParams{{Job: "child", Input: json.RawMessage(input)}}
}

// enqueue expects n results with ids.
func (h *callsTest) enqueue(runs []abi.EnqueueParams) []abi.EnqueueResult {
	h.Helper()
	rs, err := h.calls.Enqueue(bg, runs)
	if err != nil || len(rs) != len(runs) {
		h.Fatalf("Enqueue of %d answered %+v, %v", len(runs), rs, err)
	}
	for i, r := range rs {
		if r.ID == "" {
			h.Errorf("result %d has no id", i)
		}
	}
	return rs
}

// sent expects the inputs of the runs that were enqueued.
func (h *callsTest) sent(inputs ...string) {
	h.Helper()
	var got []string
	for _, p := range h.run.Enqueued(h.T) {
		got = append(got, string(p.Input))
	}
	if len(got) != len(inputs) {
		h.Fatalf("enqueued are %q, want %q", got, inputs)
	}
	for i := range got {
		if got[i] != inputs[i] {
			h.Errorf("enqueued are %q, want %q", got, inputs)
		}
	}
}

func enqueueInside(h *callsTest) {
	h.begin(3)
	h.body("a", 0)
	rs := h.enqueue(append(child("1"), child("2")...))
	if rs[0].ID == rs[1].ID || rs[0].Deduped || rs[1].Deduped {
		h.Errorf("%+v", rs)
	}
	h.sent()
	if _, err := h.calls.StepEnd(bg, []byte("1")); err != nil {
		h.Fatal(err)
	}
	h.sent("1", "2")
	h.again()
	h.replays("a", "1")
	h.sent("1", "2")
}

func enqueueVanishes(h *callsTest) {
	h.begin(3)
	h.body("a", 0)
	h.enqueue(child("1"))
	_, err := h.calls.StepFail(bg, abi.Failure{Message: "not yet"})
	h.unwinds(err)
	h.unwound(err)
	h.sent()
	h.body("a", 0)
	h.enqueue(child("2"))
	if _, err := h.calls.StepFail(bg, abi.Failure{Kind: abi.FailTerminal, Message: "never"}); err != nil {
		h.Fatal(err)
	}
	h.step("b", "1")
	h.sent()
	h.body("c", 0)
	h.enqueue(child("3"))
	h.crash()
	h.sent()
}

func enqueueOutside(h *callsTest) {
	h.begin(3)
	first := h.enqueue(child("1"))
	second := h.enqueue(append(child("2"), child("3")...))
	h.sent("1", "2", "3")
	h.again()
	if rs := h.enqueue(child("1")); rs[0].ID != first[0].ID {
		h.Errorf("the replay answered %s, the first attempt %s", rs[0].ID, first[0].ID)
	}
	if rs := h.enqueue(append(child("2"), child("3")...)); rs[0].ID != second[0].ID || rs[1].ID != second[1].ID {
		h.Errorf("the replay answered %+v, the first attempt %+v", rs, second)
	}
	h.sent("1", "2", "3")
}

func enqueueKey(h *callsTest) {
	keyed := func(input string) []abi.EnqueueParams {
		return []abi.EnqueueParams{{Job: "child", Input: json.RawMessage(input), Key: "k"}}
	}
	h.begin(3)
	rs := h.enqueue(append(keyed("1"), keyed("2")...))
	if rs[0].Deduped || !rs[1].Deduped || rs[0].ID != rs[1].ID {
		h.Errorf("two of one key in one call: %+v", rs)
	}
	h.body("a", 0)
	if in := h.enqueue(keyed("3")); !in[0].Deduped || in[0].ID != rs[0].ID {
		h.Errorf("a third one: %+v, want the id %s", in, rs[0].ID)
	}
	if _, err := h.calls.StepEnd(bg, []byte("1")); err != nil {
		h.Fatal(err)
	}
	h.sent("1")
}

func enqueueUnknown(h *callsTest) {
	h.begin(3)
	_, err := h.calls.Enqueue(bg, append(child("1"), abi.EnqueueParams{Job: "no-such-job", Input: json.RawMessage("2")}))
	h.refused(err, abi.CodeInvalid)
	h.sent()
	h.body("a", 0)
	_, err = h.calls.Enqueue(bg, []abi.EnqueueParams{{Job: "no-such-job", Input: json.RawMessage("2")}})
	h.refused(err, abi.CodeInvalid)
	if _, err := h.calls.StepEnd(bg, []byte("1")); err != nil {
		h.Fatal(err)
	}
	h.sent()
}
