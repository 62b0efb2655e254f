package abitest

import (
	"slices"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

func transcript(want ...string) func(*testing.T, *Memory, abi.Outcome) {
	return func(t *testing.T, m *Memory, _ abi.Outcome) {
		t.Helper()
		var got []string
		for _, s := range m.Transcript() {
			if len(s) < 4 || s[:4] != "log " {
				got = append(got, s)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("calls %q, want %q", got, want)
		}
	}
}

// stepCases are about the durable memory as a guest sees it.
var stepCases = []guestCase{
	{
		name: "a step passes its bytes through",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncStepBegin, "größe", 0)
			f.tell(c, abi.FuncStepEnd, ` {"n":1e400,"s":"\u0000"}`)
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"0", "0"}},
		check: transcript(`step_begin "größe"`, `step_end "größe"  {"n":1e400,"s":"\u0000"}`),
	}, {
		name: "once crosses as a flag",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncStepBegin, "s", int(abi.StepOnce))
			f.run(c, abi.FuncStepEnd, "1")
			f.done(c)
		},
		want:  want{kind: abi.Done},
		check: transcript(`step_begin "s" once`, `step_end "s" 1`),
	}, {
		name: "a failure that is final lets the guest go on",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncStepBegin, "s", 0)
			f.tell(c, abi.FuncStepFail, int(abi.FailTerminal), `{"message":"no"}`)
			f.tell(c, abi.FuncStepBegin, "t", 0)
			f.run(c, abi.FuncStepEnd, "1")
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"0", "0"}},
		check: transcript(`step_begin "s"`, `step_fail "s" 1 no`, `step_begin "t"`, `step_end "t" 1`),
	}, {
		name: "a failure with a retry left unwinds",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncStepBegin, "s", 0)
			f.run(c, abi.FuncStepFail, int(abi.FailRetry), `{"message":"not yet"}`)
			f.done(c)
		},
		want: want{kind: abi.Stopped},
		check: func(t *testing.T, _ *Memory, out abi.Outcome) {
			if r, ok := out.Err.(*StepRetry); !ok || r.Step != "s" || r.Failure.Message != "not yet" {
				t.Errorf("%v", out.Err)
			}
		},
	},
	violates("a step inside a step", "outer", func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncStepBegin, "outer", 0)
		f.run(c, abi.FuncStepBegin, "inner", 0)
	}),
	violates("the same name twice", "same", func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncStepBegin, "same", 0)
		f.run(c, abi.FuncStepEnd, "1")
		f.run(c, abi.FuncStepBegin, "same", 0)
	}),
	violates("an end without a step", abi.FuncStepEnd, func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncStepEnd, "1") }),
	violates("a failure without a step", abi.FuncStepFail, func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncStepFail, 1, `{"message":"m"}`)
	}),
	violates("an end twice", abi.FuncStepEnd, func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncStepBegin, "s", 0)
		f.run(c, abi.FuncStepEnd, "1")
		f.run(c, abi.FuncStepEnd, "1")
	}),
	violates("an unknown flag", abi.FuncStepBegin, func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncStepBegin, "s", 4) }),
	violates("an unknown kind of a step's failure", abi.FuncStepFail, func(f *fixture, c *wasmasm.Code) {
		f.run(c, abi.FuncStepBegin, "s", 0)
		f.run(c, abi.FuncStepFail, -1, `{"message":"m"}`)
	}),
}

// timerCases are about waiting.
var timerCases = []guestCase{
	{
		name: "a sleep unwinds the guest, and what suspended it comes back",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncSleep, "nap", int64(1500))
			f.done(c)
		},
		want: want{kind: abi.Stopped},
		check: func(t *testing.T, m *Memory, out abi.Outcome) {
			if s, ok := out.Err.(*Suspended); !ok || s.Name != "nap" {
				t.Errorf("%v", out.Err)
			}
			transcript(`sleep "nap" 1.5s`)(t, m, out)
		},
	}, {
		name: "a sleep until an instant passes it on, and unwinds the guest",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncSleepUntil, "never", memoryStart.Add(abi.MaxSleep).UnixMilli()+1)
			f.tell(c, abi.FuncSleepUntil, "never", int64(1)<<62)
			f.tell(c, abi.FuncSleepUntil, "over", int64(-1)<<63)
			f.run(c, abi.FuncSleepUntil, "nap", memoryStart.UnixMilli()+1500)
			f.done(c)
		},
		want: want{kind: abi.Stopped, lines: []string{"-2", "-2", "0"}},
		check: func(t *testing.T, m *Memory, out abi.Outcome) {
			if s, ok := out.Err.(*Suspended); !ok || s.Name != "nap" || !s.Wake.Equal(memoryStart.Add(1500*time.Millisecond)) {
				t.Errorf("%v", out.Err)
			}
			transcript(`sleep_until "over" 1970-01-01T00:00:00Z`, `sleep_until "nap" 2030-01-01T00:00:01.5Z`)(t, m, out)
		},
	}, {
		name: "no time is over at once",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncSleep, "a", int64(0))
			f.tell(c, abi.FuncSleep, "b", int64(-5))
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"0", "0"}},
		check: transcript(`sleep "a" 0s`, `sleep "b" 0s`),
	}, {
		name: "more than ten years is a mistake in the unit",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncSleep, "a", abi.MaxSleep.Milliseconds()+1)
			f.tell(c, abi.FuncSleep, "a", int64(-1)<<63>>1)
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"-2", "0"}},
		check: transcript(`sleep "a" 0s`),
	}, {
		name: "nothing waits inside a step",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncStepBegin, "s", 0)
			f.tell(c, abi.FuncSleep, "a", int64(5))
			f.tell(c, abi.FuncSleepUntil, "a", int64(5))
			f.tell(c, abi.FuncWaitEvent, "b", "t", "", int64(5))
			f.tell(c, abi.FuncInvoke, `{"job":"child"}`, 0)
			f.run(c, abi.FuncStepEnd, "null")
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"-6", "-6", "-6", "-6"}},
	}, {
		name:   "an event's payload is the last result",
		config: Config{Events: []Event{{Topic: "paid", Payload: []byte(`{"n":1}`), After: 0}}},
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncWaitEvent, "w", "paid", "", int64(1000))
			f.tellResult(c)
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"7", `{"n":1}`}},
		check: transcript(`wait_event "w" "paid" 1s`),
	}, {
		name: "no event in no time is a timeout",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncInput)
			f.tell(c, abi.FuncWaitEvent, "w", "paid", "", int64(0))
			f.tell(c, abi.FuncResultLen)
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"-3", "0"}},
	}, {
		name: "a wait unwinds the guest",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncWaitEvent, "w", "paid", "", int64(1000))
			f.done(c)
		},
		want: want{kind: abi.Stopped},
	}, {
		name:   "a wait takes events of its key only",
		config: Config{Events: []Event{{Topic: "paid", Payload: []byte(`1`), Key: "a"}, {Topic: "paid", Payload: []byte(`2`), Key: "b"}}},
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncWaitEvent, "w", "paid", "b", int64(1000))
			f.tellResult(c)
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"2"}},
		check: transcript(`wait_event "w" "paid" "b" 1s`),
	}, {
		name: "a negative time is passed on as such",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncWaitEvent, "w", "paid", "", int64(-1))
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"-3"}},
		check: transcript(`wait_event "w" "paid" -1ns`),
	}, {
		name: "a key that is none is refused",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncWaitEvent, "w", "paid", "\n", int64(1000))
			f.tell(c, abi.FuncPublish, "paid", "\x7f", "1")
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"-8", "-8"}},
		check: transcript(),
	},
}

// emitterCases are about what a guest sends elsewhere.
var emitterCases = []guestCase{
	{
		name: "enqueue takes one run",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncEnqueue, ` {"job":"a","input":{"n":1e400},"key":"k","tenant":"t","delay_ms":5,"priority":-1}`)
			f.tellResult(c)
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"18", `[{"id":"child-1"}]`}},
		check: transcript(`enqueue {"job":"a","input":{"n":1e400},"key":"k","tenant":"t","delay_ms":5,"priority":-1}`),
	}, {
		name: "enqueue takes several, and says which were there",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncEnqueue, `[{"job":"a","key":"k"},{"job":"b"},{"job":"a","key":"k"}]`)
			f.tellResult(c)
			f.tell(c, abi.FuncEnqueue, `[]`)
			f.tellResult(c)
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{`[{"id":"child-1"},{"id":"child-2"},{"id":"child-1","deduped":true}]`, "2", "[]"}},
	}, {
		name: "a field that the host does not know is not ignored",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncEnqueue, `{"job":"a","priorty":1}`)
			f.tell(c, abi.FuncEnqueue, `{"job":""}`)
			f.tell(c, abi.FuncEnqueue, `{"job":"a","delay_ms":1,"run_at":"2031-01-01T00:00:00Z"}`)
			f.tell(c, abi.FuncEnqueue, `null`)
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"-8", "-8", "-8", "-8"}},
		check: transcript(),
	}, {
		name:   "a job that does not exist",
		config: Config{Jobs: []string{"known"}},
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncEnqueue, `[{"job":"known"},{"job":"unknown"}]`)
			f.tellResult(c)
			f.done(c)
		},
		want: want{kind: abi.Done},
		check: func(t *testing.T, m *Memory, _ abi.Outcome) {
			ls := m.Lines()
			if len(ls) != 2 || ls[0].Text != "-8" || len(m.Sent()) != 0 {
				t.Errorf("%v, sent %+v", ls, m.Sent())
			}
		},
	}, {
		name: "publish passes topic and payload",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncPublish, "topic", "", `{"n":1}`)
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"0"}},
		check: transcript(`publish "topic" {"n":1}`),
	},
	{
		name: "publish passes a key",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncPublish, "topic", "größe", `1`)
			f.done(c)
		},
		want:  want{kind: abi.Done, lines: []string{"0"}},
		check: transcript(`publish "topic" "größe" 1`),
	},
	violates("a result of no child", abi.FuncInvokeResult, func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncInvokeResult, 0) }),
	violates("a payload that is no JSON", "JSON", func(f *fixture, c *wasmasm.Code) { f.run(c, abi.FuncPublish, "topic", "", "{") }),
	{
		name: "invoke unwinds the guest until the child is done",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncInvoke, `{"job":"child","input":1}`, 0)
			f.done(c)
		},
		want:  want{kind: abi.Stopped},
		check: transcript(`invoke {"job":"child","input":1}`),
	},
}
