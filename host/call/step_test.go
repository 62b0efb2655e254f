package call

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
)

func TestStepRunsItsBodyAndRecordsTheOutput(t *testing.T) {
	var recorded string
	g := begin(t, &fakeCalls{
		begin: func(name string, flags abi.StepFlags) (abi.StepBegun, error) {
			if name != "pay" || flags != abi.StepOnce {
				t.Errorf("StepBegin(%q, %d)", name, flags)
			}
			return abi.StepBegun{State: abi.StepRun}, nil
		},
		end: func(out string) (time.Time, error) { recorded = out; return epoch.Add(time.Hour), nil },
	}, nil)
	g.want(int64(abi.StepRun), abi.FuncStepBegin, "pay", 1)
	g.want(0, abi.FuncStepEnd, `{"id":7}`)
	if recorded != `{"id":7}` {
		t.Errorf("recorded %s", recorded)
	}
}

func TestRecordsOfFinishedStepsAreTheLastResult(t *testing.T) {
	g := begin(t, &fakeCalls{begin: func(name string, _ abi.StepFlags) (abi.StepBegun, error) {
		if name == "good" {
			return abi.StepBegun{State: abi.StepDone, Record: []byte(`"ok"`), At: epoch}, nil
		}
		return abi.StepBegun{State: abi.StepFailed, Record: []byte(`{"message":"no"}`), At: epoch}, nil
	}}, nil)
	g.want(int64(abi.StepDone), abi.FuncStepBegin, "good", 0)
	if got := g.last(); got != `"ok"` {
		t.Errorf("last result %s", got)
	}
	g.want(int64(abi.StepFailed), abi.FuncStepBegin, "bad", 0)
	if got := g.last(); got != `{"message":"no"}` {
		t.Errorf("last result %s", got)
	}
	// Neither is open now.
	g.violates("no step is open", abi.FuncStepEnd, g.args(`1`)...)
}

func TestStepsThatBreakTheContract(t *testing.T) {
	long := strings.Repeat("x", abi.MaxName+1)
	for name, c := range map[string]struct {
		detail string
		do     func(g *guest) (fn string, args []uint64)
	}{
		"step_begin inside a step": {`step "b" begins inside step "a"`, func(g *guest) (string, []uint64) {
			g.want(0, abi.FuncStepBegin, "a", 0)
			return abi.FuncStepBegin, g.args("b", 0)
		}},
		"the same name twice": {`step "a" begins a second time`, func(g *guest) (string, []uint64) {
			g.want(0, abi.FuncStepBegin, "a", 0)
			g.want(0, abi.FuncStepEnd, "1")
			return abi.FuncStepBegin, g.args("a", 0)
		}},
		"the same name twice among many": {`step "s3" begins a second time`, func(g *guest) (string, []uint64) {
			for i := range 40 {
				g.want(0, abi.FuncStepBegin, fmt.Sprint("s", i), 0)
				g.want(0, abi.FuncStepEnd, "1")
			}
			return abi.FuncStepBegin, g.args("s3", 0)
		}},
		"step_end outside a step":  {"no step is open", func(g *guest) (string, []uint64) { return abi.FuncStepEnd, g.args("1") }},
		"step_fail outside a step": {"no step is open", func(g *guest) (string, []uint64) { return abi.FuncStepFail, g.args(0, "{}") }},
		"empty name":               {"is empty", func(g *guest) (string, []uint64) { return abi.FuncStepBegin, g.args("", 0) }},
		"long name":                {"is longer", func(g *guest) (string, []uint64) { return abi.FuncStepBegin, g.args(long, 0) }},
		"name that is not UTF-8":   {"is not UTF-8", func(g *guest) (string, []uint64) { return abi.FuncStepBegin, g.args("a\xff", 0) }},
		"unknown flags":            {"unknown flags", func(g *guest) (string, []uint64) { return abi.FuncStepBegin, g.args("a", 4) }},
		"output that is not JSON": {"not strict JSON", func(g *guest) (string, []uint64) {
			g.want(0, abi.FuncStepBegin, "a", 0)
			return abi.FuncStepEnd, g.args("{")
		}},
		"unknown kind of failure": {"unknown failure kind", func(g *guest) (string, []uint64) {
			g.want(0, abi.FuncStepBegin, "a", 0)
			return abi.FuncStepFail, g.args(4, `{"message":"x"}`)
		}},
		"pointer outside memory": {"lie outside its memory", func(g *guest) (string, []uint64) { return abi.FuncStepBegin, []uint64{0xfffffff0, 16, 0} }},
		"pointer that wraps":     {"lie outside its memory", func(g *guest) (string, []uint64) { return abi.FuncStepBegin, []uint64{0xfffffff0, 0x20, 0} }},
		"length -1":              {"lie outside its memory", func(g *guest) (string, []uint64) { return abi.FuncStepBegin, []uint64{0, 0xffffffff, 0} }},
	} {
		t.Run(name, func(t *testing.T) {
			g := begin(t, &fakeCalls{}, nil)
			fn, args := c.do(g)
			g.violates(c.detail, fn, args...)
		})
	}
}

func TestLengthZeroIgnoresThePointer(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	g.call(abi.FuncLog, 1, 0xffffffff, 0)
	g.call(abi.FuncRandom, 0xffffffff, 0)
	if got := g.call(abi.FuncResultRead, 0xffffffff, 0, 0); got != 0 {
		t.Errorf("result_read copies %d", got)
	}
}

func TestAFinalStepFailureLetsTheGuestGoOn(t *testing.T) {
	var got abi.Failure
	g := begin(t, &fakeCalls{failStep: func(f abi.Failure) (time.Time, error) { got = f; return epoch, nil }}, nil)
	g.want(0, abi.FuncStepBegin, "a", 0)
	g.want(0, abi.FuncStepFail, 2, `{"message":"declined","code":"X_CARD","retry_after_ms":1500}`)
	want := abi.Failure{Kind: abi.FailRetryAfter, Message: "declined", Code: "X_CARD", RetryAfter: 1500 * time.Millisecond}
	if got != want {
		t.Errorf("failure %+v", got)
	}
	g.want(0, abi.FuncStepBegin, "b", 0)
}

func TestAnErrorOfCallsStopsTheGuestAndComesBackUntouched(t *testing.T) {
	boom := errors.New("the store is gone")
	for name, do := range map[string]func(g *guest) (int64, bool){
		abi.FuncStepBegin: func(g *guest) (int64, bool) { return g.try(abi.FuncStepBegin, g.args("a", 0)...) },
		abi.FuncSleep:     func(g *guest) (int64, bool) { return g.try(abi.FuncSleep, g.args("a", 5)...) },
		abi.FuncWaitEvent: func(g *guest) (int64, bool) { return g.try(abi.FuncWaitEvent, g.args("a", "t", "", 5)...) },
		abi.FuncEnqueue:   func(g *guest) (int64, bool) { return g.try(abi.FuncEnqueue, g.args(`{"job":"x"}`)...) },
		abi.FuncInvoke:    func(g *guest) (int64, bool) { return g.try(abi.FuncInvoke, g.args(`{"job":"x"}`, 1)...) },
		abi.FuncPublish:   func(g *guest) (int64, bool) { return g.try(abi.FuncPublish, g.args("t", "", `1`)...) },
		abi.FuncCompensate: func(g *guest) (int64, bool) {
			return g.try(abi.FuncCompensate)
		},
	} {
		g := begin(t, &fakeCalls{
			begin:   func(string, abi.StepFlags) (abi.StepBegun, error) { return abi.StepBegun{}, boom },
			sleep:   func(string, time.Duration) (time.Time, error) { return time.Time{}, boom },
			wait:    func(abi.WaitParams) ([]byte, time.Time, error) { return nil, time.Time{}, boom },
			enqueue: func([]abi.EnqueueParams) ([]abi.EnqueueResult, error) { return nil, boom },
			invoke:  func([]abi.EnqueueParams, int) ([]abi.InvokeResult, time.Time, error) { return nil, time.Time{}, boom },
			publish: func(abi.PublishParams) error { return boom },
			undo:    func() (string, error) { return "", boom },
		}, nil)
		if r, unwound := do(g); !unwound {
			t.Errorf("%s answers %d", name, r)
		}
		out, _ := g.state.End(Ended{Export: abi.ExportRun, Err: unwound})
		if out.Kind != abi.Stopped || out.Err != boom {
			t.Errorf("%s: outcome %v, error %v", name, out.Kind, out.Err)
		}
	}
}

func TestARefusalIsAnswered(t *testing.T) {
	refusal := &abi.Refusal{Code: abi.CodeInvalid, Failure: abi.Failure{Message: "no such job", Fix: "declare it"}}
	g := begin(t, &fakeCalls{
		enqueue: func([]abi.EnqueueParams) ([]abi.EnqueueResult, error) {
			return nil, fmt.Errorf("enqueue: %w", refusal)
		},
		undo: func() (string, error) { return "", &abi.Refusal{Code: abi.CodeUnsupported} },
	}, nil)
	g.want(code(abi.CodeInvalid), abi.FuncEnqueue, `{"job":"x"}`)
	if got := g.last(); got != `{"message":"no such job","fix":"declare it"}` {
		t.Errorf("last result %s", got)
	}
	g.want(code(abi.CodeUnsupported), abi.FuncCompensate)
	if got := g.last(); got != "" {
		t.Errorf("last result %s", got)
	}
}

// A refusal with a code that reads as success would make the guest go on as if
// it had what it asked for.
func TestARefusalWithoutANegativeCodeCountsAsFailed(t *testing.T) {
	g := begin(t, &fakeCalls{publish: func(abi.PublishParams) error { return &abi.Refusal{} }}, nil)
	g.want(code(abi.CodeFailed), abi.FuncPublish, "t", "", "1")
}

func TestAViolationOfCallsFailsTheAttemptForGood(t *testing.T) {
	g := begin(t, &fakeCalls{begin: func(string, abi.StepFlags) (abi.StepBegun, error) {
		return abi.StepBegun{}, &abi.Violation{Func: abi.FuncStepBegin, Detail: "the history has another step here"}
	}}, nil)
	g.violates("another step here", abi.FuncStepBegin, g.args("a", 0)...)
}

func TestWhatIsLegalOnlyInsideOrOutsideAStep(t *testing.T) {
	outside := map[string][]any{
		abi.FuncSleep:      {"n", 1},
		abi.FuncSleepUntil: {"n", 1},
		abi.FuncWaitEvent:  {"n", "t", "", 1},
		abi.FuncInvoke:     {`{"job":"x"}`, 1},
		abi.FuncCompensate: {},
	}
	inside := map[string][]any{
		abi.FuncHTTPFetch: {`{"url":"https://a.example/"}`},
		abi.FuncSQL:       {`{}`},
	}
	g := begin(t, &fakeCalls{}, nil)
	for fn, args := range inside {
		g.want(code(abi.CodeInsideStepOnly), fn, args...)
	}
	g.want(0, abi.FuncStepBegin, "a", 0)
	for fn, args := range outside {
		g.want(code(abi.CodeOutsideStepOnly), fn, args...)
	}
}

func TestLimitsAreAnsweredAndLeaveTheStepOpen(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	g.want(0, abi.FuncStepBegin, "a", 0)
	big := `"` + strings.Repeat("x", abi.MaxOutput) + `"`
	g.want(code(abi.CodeLimit), abi.FuncStepEnd, big)
	g.want(0, abi.FuncStepEnd, `1`)
}

func TestTheContextOfTheRunReachesCalls(t *testing.T) {
	calls := &fakeCalls{}
	g := begin(t, calls, nil)
	g.want(0, abi.FuncStepBegin, "a", 0)
	if calls.ctx != g.state.Context {
		t.Error("Calls got another context than the run's")
	}
}

// The body has had its effect when its end is reported, so a drain that began
// meanwhile may still record it; nothing new begins.
func TestStepEndIsReportedAfterTheContextEnded(t *testing.T) {
	drained := errors.New("draining")
	for name, end := range map[string]error{"recorded": nil, "refused": drained} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			reported := 0
			g := beginWith(t, ctx, BeginParams{
				Attempt: &abi.Attempt{Handler: "h", Now: epoch},
				Calls: &fakeCalls{end: func(string) (time.Time, error) {
					reported++
					return epoch, end
				}},
			})
			g.want(int64(abi.StepRun), abi.FuncStepBegin, "pay", 0)
			args := g.args("1")
			next := g.args("ship", 0)
			cancel(drained)
			_, unwound := g.try(abi.FuncStepEnd, args...)
			if !unwound && end != nil {
				t.Error("a refused end let the guest go on")
			}
			if reported != 1 {
				t.Errorf("StepEnd was called %d times", reported)
			}
			if unwound {
				return
			}
			if _, unwound := g.try(abi.FuncStepBegin, next...); !unwound {
				t.Error("another step began after the context ended")
			}
		})
	}
}

// The undoing of a step is open as a step is: with the real clock, and ended by
// step_end or step_fail.
func TestCompensateOpensTheUndoingOfAStep(t *testing.T) {
	names := []string{"charge", "reserve", ""}
	var ended []string
	g := begin(t, &fakeCalls{
		undo: func() (string, error) {
			name := names[0]
			names = names[1:]
			return name, nil
		},
		end: func(out string) (time.Time, error) {
			ended = append(ended, out)
			return time.Time{}, nil
		},
	}, nil)
	for _, name := range []string{"charge", "reserve"} {
		g.want(int64(len(name)), abi.FuncCompensate)
		if got := g.last(); got != name {
			t.Errorf("last result %q, want %q", got, name)
		}
		g.want(code(abi.CodeOutsideStepOnly), abi.FuncCompensate)
		g.want(0, abi.FuncStepEnd, "null")
	}
	g.want(0, abi.FuncCompensate)
	if len(ended) != 2 {
		t.Errorf("ended %q", ended)
	}
	g.violates("no step is open", abi.FuncStepEnd, g.args("null")...)
}
