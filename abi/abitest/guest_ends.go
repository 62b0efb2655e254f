package abitest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// endCases are the ways in which a handler that does not trap can end.
var endCases = []guestCase{
	{
		name: "answers 0 after output",
		body: func(f *fixture, c *wasmasm.Code) { f.done(c) },
		want: want{kind: abi.Done, output: "null"},
	}, {
		name: "the last output wins",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncOutput, `{"n":1}`)
			f.do(c, abi.FuncOutput, `{"n":1e400,"s":"\u0000"}`)
		},
		want: want{kind: abi.Done, output: `{"n":1e400,"s":"\u0000"}`},
	}, {
		name: "answers 0 without output",
		body: func(f *fixture, c *wasmasm.Code) { c.I32Const(0) },
		want: want{kind: abi.Crashed, code: abi.CodeGuestNoOutput, fail: abi.FailTerminal},
	}, {
		name: "answers 1 after fail, to be tried again",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncFail, int(abi.FailRetry), `{"message":"boom","code":"X_BOOM","fix":"less","stack":"a\nb"}`)
			c.I32Const(abi.RunFailed)
		},
		want: want{kind: abi.Failed, code: "X_BOOM", says: "boom"},
		check: func(t *testing.T, _ *Memory, out abi.Outcome) {
			if out.Failure.Fix != "less" || out.Failure.Stack != "a\nb" {
				t.Errorf("%+v", out.Failure)
			}
		},
	}, {
		name: "answers 1 after fail, for good",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncFail, int(abi.FailTerminal), `{"message":"boom"}`)
			c.I32Const(abi.RunFailed)
		},
		want: want{kind: abi.Failed, fail: abi.FailTerminal, says: "boom"},
	}, {
		name: "answers 1 after fail, with a wait",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncFail, int(abi.FailRetryAfter), `{"message":"boom","retry_after_ms":1500}`)
			c.I32Const(abi.RunFailed)
		},
		want:  want{kind: abi.Failed, fail: abi.FailRetryAfter},
		check: waits(1500 * time.Millisecond),
	}, {
		name: "answers 1 after fail, rate limited",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncFail, int(abi.FailRateLimited), `{"message":"429","retry_after_ms":60000}`)
			c.I32Const(abi.RunFailed)
		},
		want:  want{kind: abi.Failed, fail: abi.FailRateLimited},
		check: waits(time.Minute),
	}, {
		name: "a wait that is no number leaves the policy's own",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncFail, int(abi.FailRetryAfter), `{"message":"boom","retry_after_ms":-1}`)
			c.I32Const(abi.RunFailed)
		},
		want: want{kind: abi.Failed, fail: abi.FailRetry},
	}, {
		name: "answers 1 without fail",
		body: func(f *fixture, c *wasmasm.Code) { c.I32Const(abi.RunFailed) },
		want: want{kind: abi.Crashed, code: abi.CodeABIViolation, fail: abi.FailTerminal},
	}, {
		name: "an unknown answer",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncOutput, "null")
			c.I32Const(7)
		},
		want: want{kind: abi.Crashed, code: abi.CodeABIViolation, fail: abi.FailTerminal, says: "7"},
	}, {
		name: "an unknown kind of failure",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncFail, 4, `{"message":"boom"}`)
			c.I32Const(abi.RunFailed)
		},
		want: want{kind: abi.Crashed, code: abi.CodeABIViolation, fail: abi.FailTerminal, says: abi.FuncFail},
	}, {
		name: "a failure that is no JSON",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncFail, 0, `{"message":"boom"`)
			c.I32Const(abi.RunFailed)
		},
		want: want{kind: abi.Crashed, code: abi.CodeABIViolation, fail: abi.FailTerminal, says: "JSON"},
	}, {
		name: "a failure that is no object",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncFail, 0, `"boom"`)
			c.I32Const(abi.RunFailed)
		},
		want: want{kind: abi.Crashed, code: abi.CodeABIViolation, fail: abi.FailTerminal},
	}, {
		name: "exits with 0 after output",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncOutput, `"bye"`)
			f.do(c, "proc_exit", 0).I32Const(0)
		},
		want: want{kind: abi.Done, output: `"bye"`},
	}, {
		name: "exits with 0 without output",
		body: func(f *fixture, c *wasmasm.Code) { f.do(c, "proc_exit", 0).I32Const(0) },
		want: want{kind: abi.Crashed, code: abi.CodeGuestNoOutput, fail: abi.FailTerminal},
	}, {
		name: "exits with a code",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncOutput, "null")
			f.do(c, "proc_exit", 3).I32Const(0)
		},
		want: want{kind: abi.Crashed, code: abi.CodeGuestExit, says: "3"},
	}, {
		name: "exits with a code that a host might use itself",
		body: func(f *fixture, c *wasmasm.Code) { f.do(c, "proc_exit", 0x5ec00001).I32Const(0) },
		want: want{kind: abi.Crashed, code: abi.CodeGuestExit},
	}, {
		name: "returns inside a step",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncStepBegin, "left open", 0)
			f.done(c)
		},
		want: want{kind: abi.Crashed, code: abi.CodeABIViolation, fail: abi.FailTerminal, says: "left open"},
	},
}

func waits(d time.Duration) func(*testing.T, *Memory, abi.Outcome) {
	return func(t *testing.T, _ *Memory, out abi.Outcome) {
		if out.Failure.RetryAfter != d {
			t.Errorf("waits %v, want %v", out.Failure.RetryAfter, d)
		}
	}
}

var (
	errStopped = errors.New("stopped by the test")
	errOfCalls = errors.New("an error of a Calls method")
)

// overridden is a Memory some of whose methods do something else.
type overridden struct {
	*Memory
	log     func()
	sleep   func(ctx context.Context) error
	enqueue func() ([]abi.EnqueueResult, error)
}

func (o *overridden) Log(ctx context.Context, level abi.Level, line string) {
	o.Memory.Log(ctx, level, line)
	if o.log != nil {
		o.log()
	}
}

func (o *overridden) Sleep(ctx context.Context, name string, d time.Duration) (time.Time, error) {
	if o.sleep != nil {
		return time.Time{}, o.sleep(ctx)
	}
	return o.Memory.Sleep(ctx, name, d)
}

func (o *overridden) Enqueue(ctx context.Context, runs []abi.EnqueueParams) ([]abi.EnqueueResult, error) {
	if o.enqueue != nil {
		return o.enqueue()
	}
	return o.Memory.Enqueue(ctx, runs)
}

// hostCases are what a host makes of what Calls and its context answer.
var hostCases = []guestCase{
	{
		name: "an error of Calls stops the guest and comes back untouched",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncSleep, "s", int64(1))
			f.done(c)
		},
		calls: func(m *Memory, _ func()) abi.Calls {
			return &overridden{Memory: m, sleep: func(context.Context) error { return errOfCalls }}
		},
		want: want{kind: abi.Stopped, err: errOfCalls},
	}, {
		name: "a violation found by Calls",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncSleep, "s", int64(1))
			f.done(c)
		},
		calls: func(m *Memory, _ func()) abi.Calls {
			return &overridden{Memory: m, sleep: func(context.Context) error {
				return &abi.Violation{Func: abi.FuncSleep, Detail: "so says Calls"}
			}}
		},
		want: want{kind: abi.Crashed, code: abi.CodeABIViolation, fail: abi.FailTerminal, says: "so says Calls"},
	}, {
		name: "a panic of Calls is the host's failure",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncEnqueue, `{"job":"a"}`)
			f.done(c)
		},
		calls: func(m *Memory, _ func()) abi.Calls {
			return &overridden{Memory: m, enqueue: func() ([]abi.EnqueueResult, error) { panic("a bug") }}
		},
		want: want{kind: abi.Crashed, code: abi.CodeHostFailure},
	}, {
		name: "a refusal is the guest's to handle",
		body: func(f *fixture, c *wasmasm.Code) {
			f.tell(c, abi.FuncEnqueue, `{"job":"a"}`)
			f.tellResult(c)
			f.done(c)
		},
		calls: func(m *Memory, _ func()) abi.Calls {
			return &overridden{Memory: m, enqueue: func() ([]abi.EnqueueResult, error) {
				return nil, &abi.Refusal{Code: abi.CodeDenied, Failure: abi.Failure{Message: "not you", Code: "X_NO"}}
			}}
		},
		want: want{kind: abi.Done, lines: []string{"-1", `{"message":"not you","code":"X_NO"}`}},
	}, {
		name: "a refusal without words empties the last result",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncInput)
			f.tell(c, abi.FuncEnqueue, `{"job":"a"}`)
			f.tell(c, abi.FuncResultLen)
			f.done(c)
		},
		calls: func(m *Memory, _ func()) abi.Calls {
			return &overridden{Memory: m, enqueue: func() ([]abi.EnqueueResult, error) {
				return nil, &abi.Refusal{Code: abi.CodeLimit}
			}}
		},
		want: want{kind: abi.Done, lines: []string{"-2", "0"}},
	}, {
		name: "an endless loop stops when the context ends",
		body: func(f *fixture, c *wasmasm.Code) {
			f.do(c, abi.FuncLog, 1, "on and on")
			c.Loop(wasmasm.Empty).Br(0).End().Op(wasmasm.Unreachable)
		},
		calls: func(m *Memory, stop func()) abi.Calls { return &overridden{Memory: m, log: stop} },
		want:  want{kind: abi.Stopped, err: errStopped, lines: []string{"on and on"}},
	}, {
		name: "a call that waits stops when the context ends",
		body: func(f *fixture, c *wasmasm.Code) {
			f.run(c, abi.FuncSleep, "s", int64(1))
			f.done(c)
		},
		calls: func(m *Memory, stop func()) abi.Calls {
			return &overridden{Memory: m, sleep: func(ctx context.Context) error {
				stop()
				<-ctx.Done()
				return context.Cause(ctx)
			}}
		},
		want: want{kind: abi.Stopped, err: errStopped},
	}, {
		name: "no call is passed on after the context ended",
		body: func(f *fixture, c *wasmasm.Code) {
			f.do(c, abi.FuncLog, 1, "last")
			f.run(c, abi.FuncStepBegin, "never", 0)
			f.done(c)
		},
		calls: func(m *Memory, stop func()) abi.Calls { return &overridden{Memory: m, log: stop} },
		want:  want{kind: abi.Stopped, err: errStopped},
		check: func(t *testing.T, m *Memory, _ abi.Outcome) {
			if rs := m.Records(); len(rs) != 0 {
				t.Errorf("records %+v", rs)
			}
		},
	}, {
		name: "the host says what the attempt used",
		body: func(f *fixture, c *wasmasm.Code) { f.done(c) },
		want: want{kind: abi.Done},
		check: func(t *testing.T, _ *Memory, out abi.Outcome) {
			if out.Usage.MemoryBytes != (pages+1)<<16 || out.Usage.CPU < 0 {
				t.Errorf("%+v, want %d bytes", out.Usage, (pages+1)<<16)
			}
		},
	},
}
