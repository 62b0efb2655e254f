package call

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
)

func TestOutsideStepsTheClockIsTheRuns(t *testing.T) {
	at := epoch.Add(3 * time.Hour)
	g := begin(t, &fakeCalls{
		sleep: func(string, time.Duration) (time.Time, error) { return at, nil },
		wait: func(abi.WaitParams) ([]byte, time.Time, error) {
			return nil, at.Add(time.Hour), &abi.Refusal{Code: abi.CodeTimeout}
		},
	}, nil)
	first := g.call(abi.FuncNow)
	if first != epoch.UnixNano()+1000 {
		t.Errorf("the clock starts at %v, want a microsecond after %v", time.Unix(0, first).UTC(), epoch)
	}
	if second := g.call(abi.FuncNow); second <= first {
		t.Errorf("the clock reads %d after %d", second, first)
	}
	g.want(0, abi.FuncSleep, "nap", 10)
	if got := g.call(abi.FuncNow); got != at.UnixNano()+1000 {
		t.Errorf("after the sleep the clock is %v, want %v", time.Unix(0, got).UTC(), at)
	}
	g.want(code(abi.CodeTimeout), abi.FuncWaitEvent, "ev", "topic", "", 10)
	if got := g.call(abi.FuncNow); got != at.Add(time.Hour).UnixNano()+1000 {
		t.Errorf("after the timeout the clock is %v", time.Unix(0, got).UTC())
	}
}

func TestInsideAStepTheClockIsRealAndLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := epoch.Add(time.Minute)
		c := newClock(epoch.Add(-50 * 365 * 24 * time.Hour)) // long before any real clock
		c.virtual = time.Now().Add(-time.Hour).UnixNano()
		before := c.virtual
		c.enterStep()
		if got := c.now(); got != time.Now().UnixNano() {
			t.Errorf("inside the step the clock is %d", got)
		}
		time.Sleep(time.Second)
		if got := c.now(); got != time.Now().UnixNano() {
			t.Errorf("inside the step the clock does not move with the real one: %d", got)
		}
		c.leaveStep(time.Time{})
		if got := c.now(); got != before+1000 {
			t.Errorf("after the step the clock is %d, want what a replay sees: %d", got, before+1000)
		}
		c.enterStep()
		c.leaveStep(recorded)
		if got := c.now(); got != recorded.UnixNano()+1000 {
			t.Errorf("after the step the clock is %d, want the record's", got)
		}
	})
}

// A guest that slept virtually is ahead of the real clock; a language runtime
// that saw time run backwards inside a step would miss its timers.
func TestInsideAStepTheClockDoesNotRunBackwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(time.Now())
		c.advance(48 * time.Hour)
		before := c.now()
		c.enterStep()
		if got := c.now(); got < before {
			t.Errorf("the clock reads %d after %d", got, before)
		}
		time.Sleep(time.Second)
		if got := c.now() - before; got != int64(time.Second) {
			t.Errorf("a second later it moved by %v", time.Duration(got))
		}
	})
}

func TestTheClockDoesNotOverflow(t *testing.T) {
	c := newClock(epoch)
	for range 400 {
		c.advance(math.MaxInt64 / 4)
	}
	if got := c.now(); got != math.MaxInt64 {
		t.Errorf("the clock is %d", got)
	}
	if c.observe(epoch); c.now() != math.MaxInt64 {
		t.Error("the clock ran back")
	}
}

func TestAnAttemptWithoutAClockStartsAfterTheModuleWasBroughtUp(t *testing.T) {
	c := newClock(time.Time{})
	if got := c.now(); got <= bootTime.UnixNano() {
		t.Errorf("the clock is %v", time.Unix(0, got).UTC())
	}
}

func TestRandomnessOutsideStepsIsTheRuns(t *testing.T) {
	read := func() (out, in string) {
		g := begin(t, &fakeCalls{}, nil)
		take := func() string {
			p, _ := g.put("0123456789abc")
			g.call(abi.FuncRandom, p, 13)
			b, _ := g.mod.Memory().Read(uint32(p), 13)
			return string(b)
		}
		out = take()
		g.want(0, abi.FuncStepBegin, "a", 0)
		in = take()
		g.want(0, abi.FuncStepEnd, "1")
		return out + take(), in
	}
	out1, in1 := read()
	out2, in2 := read()
	if out1 != out2 {
		t.Error("two attempts of a run got different random bytes outside steps")
	}
	if in1 == in2 {
		t.Error("two attempts got the same random bytes inside a step")
	}
	if out1[:13] == out1[13:] {
		t.Error("the same random bytes twice in one attempt")
	}
}

func TestWASIReadsTheSameSources(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	p, _ := g.put("........")
	g.want(0, "clock_time_get", 1, 0, int(p))
	v, _ := g.mod.Memory().ReadUint64Le(uint32(p))
	if int64(v) != epoch.UnixNano()+1000 {
		t.Errorf("clock_time_get writes %d", v)
	}
	g.want(0, "random_get", int(p), 8)
	v, _ = g.mod.Memory().ReadUint64Le(uint32(p))
	want := random{state: 7}
	if v != want.next() {
		t.Error("random_get is not the run's generator")
	}
}
