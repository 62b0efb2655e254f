package guesttest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/guest"
	"github.com/jobrunner/runner/abi/guest/internal/bridge"
	"github.com/jobrunner/runner/abi/wire"
)

// Capabilities are what a host grants besides what abi.Calls does. A nil one is
// denied.
type Capabilities struct {
	// HTTP answers requests. An error that is a *abi.Refusal is the guest's
	// answer; any other is CodeFailed with its text.
	HTTP func(guest.Request) (guest.Response, error)
	// Secrets by name.
	Secrets map[string]string
}

// Guest is an abi.Guest of all handlers that this test binary has registered.
func Guest(c Capabilities) abi.Guest { return native{c} }

type native struct{ can Capabilities }

// Digest is not that of any module.
func (native) Digest() string { return "native" }

// Describe is what a module with these handlers would say.
func (native) Describe() abi.Description {
	h := &host{}
	bridge.Native.Describe(h)
	d, err := wire.DecodeDescription(h.output)
	if err != nil {
		panic(err)
	}
	return d
}

// Run implements abi.Guest.
func (g native) Run(ctx context.Context, a abi.Attempt, calls abi.Calls) abi.Outcome {
	index := slices.IndexFunc(g.Describe().Handlers, func(h abi.Handler) bool { return h.Name == a.Handler })
	if index < 0 {
		err := fmt.Errorf("there is no handler %q in this test binary", a.Handler)
		return crashed(abi.CodeHostFailure, err)
	}
	h := &host{ctx: ctx, a: a, calls: calls, can: g.can, clock: a.Now, rng: generator(a.Seed, "run")}
	answer, returned := int32(0), false
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer = bridge.Native.Run(int32(index), h)
		returned = true
	}()
	<-done
	return h.outcome(answer, returned)
}

// generator is reproducible: the same for the same stream of a run.
func generator(seed uint64, stream string) *rand.ChaCha8 {
	return rand.NewChaCha8(sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(stream), seed)))
}

// outcome is how the attempt ended. One that did not return was stopped by the
// host, or by a test helper such as t.FailNow.
func (h *host) outcome(answer int32, returned bool) abi.Outcome {
	var v *abi.Violation
	switch {
	case h.stop != nil:
		if violation, ok := h.stop.(*abi.Violation); ok {
			v = violation
			break
		}
		return abi.Outcome{Kind: abi.Stopped, Err: h.stop}
	case !returned:
		return abi.Outcome{Kind: abi.Stopped, Err: errLeft}
	case h.inStep:
		v = &abi.Violation{Func: abi.ExportRun, Detail: "it returned inside a step"}
	case answer == abi.RunDone && h.output == nil:
		return crashed(abi.CodeGuestNoOutput, fmt.Errorf("the handler returned without an output"))
	case answer == abi.RunDone:
		return abi.Outcome{Kind: abi.Done, Output: h.output}
	case answer == abi.RunFailed && h.failure != nil:
		return abi.Outcome{Kind: abi.Failed, Failure: *h.failure}
	case answer == abi.RunFailed:
		v = &abi.Violation{Func: abi.ExportRun, Detail: "it failed without calling fail"}
	default:
		v = &abi.Violation{Func: abi.ExportRun, Detail: fmt.Sprintf("it returned %d", answer)}
	}
	return crashed(abi.CodeABIViolation, v)
}

var errLeft = fmt.Errorf("the handler's goroutine ended without returning, as after t.FailNow")

func crashed(code string, err error) abi.Outcome {
	return abi.Outcome{Kind: abi.Crashed, Err: err, Failure: abi.Failure{Kind: abi.FailTerminal, Code: code, Message: err.Error()}}
}

// realTime is the time inside steps: that of calls' own clock, if it has one.
func (h *host) realTime() time.Time {
	if c, ok := h.calls.(interface{ Now() time.Time }); ok {
		return c.Now()
	}
	return time.Now()
}
