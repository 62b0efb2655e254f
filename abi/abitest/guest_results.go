package abitest

import (
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/abi/wire"
)

// resultCases are about how bytes get from the host to a guest.
var resultCases = []guestCase{
	{
		name:  "the input arrives as it was sent",
		input: ` {"n":1e400,"s":"\u0000é"} `,
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncInput)
			f.tell(c, abi.FuncResultLen)
			f.tellResult(c)
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"28", "28", ` {"n":1e400,"s":"\u0000é"} `}},
	}, {
		name:  "a result is read in parts",
		input: `"abcdef"`,
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncInput)
			f.tell(c, abi.FuncResultRead, atBuffer, 3, 0)   // "ab
			f.tell(c, abi.FuncResultRead, atBuffer+3, 3, 3) // cde
			f.tell(c, abi.FuncResultRead, atBuffer+6, 9, 6) // f"
			f.tell(c, abi.FuncResultRead, atBuffer, 9, 8)
			f.tell(c, abi.FuncResultRead, atBuffer, 9, 99)
			f.tell(c, abi.FuncResultRead, atBuffer, 0, 0)
			c.I32Const(1).I32Const(atBuffer).I32Const(8).Call(f.fns[abi.FuncLog])
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"3", "3", "2", "0", "0", "0", `"abcdef"`}},
	}, {
		name: "reading a result does not consume it, and log leaves it alone",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncInput)
			f.tellResult(c)
			f.tellResult(c)
			f.done(c)
		},
		input: "7",
		want:  want{kind: abi.Done, lines: []string{"7", "7"}},
	}, {
		name: "without a call there is no result",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncResultLen)
			f.tell(c, abi.FuncResultRead, atBuffer, 9, 0)
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"0", "0"}},
	}, {
		name:   "meta says what is known of the run",
		config: Config{Job: "j", Queue: "q", Tenant: "t", RunID: "r", MaxAttempts: 5},
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncAttempt)
			f.run(c, abi.FuncMeta)
			f.tellResult(c)
			f.done(c)
		},
		want: want{kind: abi.Done},
		check: func(t *testing.T, m *Memory, _ abi.Outcome) {
			ls := m.Lines()
			if len(ls) != 2 || ls[0].Text != "1" {
				t.Fatalf("%v", ls)
			}
			got, err := wire.ReadMeta([]byte(ls[1].Text))
			want := abi.Meta{RunID: "r", Job: "j", Queue: "q", Tenant: "t", Attempt: 1, MaxAttempts: 5, EnqueuedAt: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
			if err != nil || !got.EnqueuedAt.Equal(want.EnqueuedAt) || !got.Deadline.IsZero() {
				t.Errorf("%+v, %v", got, err)
			}
			got.EnqueuedAt, got.Module = want.EnqueuedAt, ""
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		},
	}, {
		name: "an optional function that is not served says so",
		config: Config{
			Unsupported: abi.FeatureInvoke | abi.FeaturePublish | abi.FeatureWaitEvent,
		},
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncPublish, "topic", "", "null")
			f.tell(c, abi.FuncWaitEvent, "w", "topic", "", int64(1))
			f.tell(c, abi.FuncInvoke, `{"job":"child"}`, 0)
			f.tell(c, abi.FuncCompensate)
			f.do(c, abi.FuncFeatures).I64Const(int64(abi.FeatureInvoke | abi.FeaturePublish | abi.FeatureWaitEvent | abi.FeatureSQL | abi.FeatureCompensate))
			c.Op(wasmasm.I64And, wasmasm.I32WrapI64).Call(f.say)
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"-7", "-7", "-7", "-7", "0"}},
	}, {
		name: "an optional function that Calls serves has its bit",
		body: func(f *fixture, c *wasmasm.Code) {
			f.do(c, abi.FuncFeatures).I64Const(int64(abi.FeatureInvoke | abi.FeaturePublish | abi.FeatureWaitEvent))
			c.Op(wasmasm.I64And, wasmasm.I32WrapI64).Call(f.say)
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"76"}},
	}, {
		name: "a secret that is not granted is denied",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncSecret, "STRIPE_KEY")
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"-1"}},
	}, {
		name: "a request to where nothing is granted is denied, and only possible in a step",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncHTTPFetch, `{"url":"https://api.example.com/"}`)
			f.run(c, abi.FuncStepBegin, "s", 0)
			f.tell(c, abi.FuncHTTPFetch, `{"url":"https://api.example.com/"}`)
			f.tell(c, abi.FuncHTTPFetch, `{"url":"ftp://api.example.com/"}`)
			f.tell(c, abi.FuncHTTPFetch, `{"url":"https://api.example.com/","redirect":true}`)
			f.run(c, abi.FuncStepEnd, "null")
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"-5", "-1", "-8", "-8"}},
	}, {
		name: "a statement is only possible in a step, where it is not served",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncStepBegin, "s", 0)
			f.tell(c, abi.FuncSQL, `{}`)
			f.run(c, abi.FuncStepEnd, "null")
			f.done(c)
		},
		want: want{kind: abi.Done, lines: []string{"-7"}},
	},
}
