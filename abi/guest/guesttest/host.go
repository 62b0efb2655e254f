package guesttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/guest"
	"github.com/jobrunner/runner/abi/guest/internal/bridge"
	"github.com/jobrunner/runner/abi/wire"
)

// host serves one attempt of a native handler. It is used by the handler's
// goroutine only, and read by its starter after that has ended.
type host struct {
	ctx   context.Context
	a     abi.Attempt
	calls abi.Calls
	can   Capabilities

	last     []byte             // the last result
	children []abi.InvokeResult // of the latest invoke
	clock    time.Time
	inStep   bool
	rng      *rand.ChaCha8 // outside steps
	real     *rand.ChaCha8 // inside steps
	stop     error         // why it was unwound
	output   []byte
	failure  *abi.Failure
}

var _ bridge.Host = (*host)(nil)

// unwind ends the handler's goroutine. Deferred functions that call the host
// end up here again.
func (h *host) unwind(err error) {
	if h.stop == nil {
		h.stop = err
	}
	runtime.Goexit()
}

// alive is called first by whatever a stopped handler must not do any more.
func (h *host) alive() {
	if h.stop != nil {
		runtime.Goexit()
	}
	if h.ctx.Err() != nil {
		h.unwind(context.Cause(h.ctx))
	}
}

// answered makes an error of a Calls method or of package wire into what the
// guest gets: a negative answer, or nothing at all.
func (h *host) answered(err error) int32 {
	h.last = nil
	if err == nil {
		return 0
	}
	var r *abi.Refusal
	if !errors.As(err, &r) {
		h.unwind(err)
	}
	if r.Failure.Message != "" {
		h.last = wire.AppendFailure(nil, r.Failure)
	}
	return int32(r.Code)
}

// yields is answered for a call with a result.
func (h *host) yields(b []byte, err error) int32 {
	if err != nil {
		return h.answered(err)
	}
	h.last = b
	return int32(len(b))
}

// name checks a name.
func (h *host) name(fn, s string) string {
	s, err := wire.Name(fn, []byte(s))
	if err != nil {
		h.unwind(err)
	}
	return s
}

func (h *host) moved(at time.Time, err error) error {
	if err == nil && !at.IsZero() {
		h.clock = at
	}
	return err
}

func (h *host) Attempt() int32 { return int32(h.a.Meta.Attempt) }
func (h *host) Input() int32   { return h.yields(h.a.Input, nil) }
func (h *host) Meta() int32    { return h.yields(wire.AppendMeta(nil, h.a.Meta)) }
func (h *host) Features() uint64 {
	f := h.calls.Features()
	if h.can.HTTP != nil {
		f |= abi.FeatureHTTP
	}
	if h.can.Secrets != nil {
		f |= abi.FeatureSecret
	}
	return uint64(f)
}

func (h *host) ResultLen() int32 { return int32(len(h.last)) }
func (h *host) ResultRead(p []byte, off int32) int32 {
	return int32(copy(p, h.last[min(max(int(off), 0), len(h.last)):]))
}

func (h *host) Now() int64 {
	if h.inStep {
		return h.realTime().UnixNano()
	}
	return h.clock.UnixNano()
}

func (h *host) Random(p []byte) {
	if h.inStep {
		_, _ = h.real.Read(p) // never fails
		return
	}
	_, _ = h.rng.Read(p)
}

func (h *host) Log(level uint32, line string) {
	h.alive()
	h.calls.Log(h.ctx, wire.Level(level), wire.LogLine([]byte(line)))
}

func (h *host) Progress(permille int32, note string) {
	h.alive()
	h.calls.Progress(h.ctx, wire.Permille(permille), wire.Note([]byte(note)))
}

func (h *host) Compensate() int32 {
	h.alive()
	if h.inStep {
		return int32(abi.CodeOutsideStepOnly)
	}
	name, err := h.calls.Compensate(h.ctx)
	h.inStep = err == nil && name != ""
	return h.yields([]byte(name), err)
}

func (h *host) StepBegin(name string, flags uint32) int32 {
	h.alive()
	name = h.name(abi.FuncStepBegin, name)
	f, err := wire.StepFlags(flags)
	if err != nil {
		h.unwind(err)
	}
	begun, err := h.calls.StepBegin(h.ctx, name, f)
	if err := h.moved(begun.At, err); err != nil {
		return h.answered(err)
	}
	h.last = begun.Record
	if begun.State == abi.StepRun {
		// Random to the handler, and yet the same whenever the test is run.
		h.inStep, h.real = true, generator(h.a.Seed, fmt.Sprint("step ", name, " attempt ", h.a.Meta.Attempt))
	}
	return int32(begun.State)
}

func (h *host) StepEnd(b []byte) int32 {
	h.alive()
	if err := wire.JSON(abi.FuncStepEnd, "the step's output", b, abi.MaxOutput); err != nil {
		return h.answered(err)
	}
	err := h.moved(h.calls.StepEnd(h.ctx, bytes.Clone(b)))
	if err == nil {
		h.inStep = false
	}
	return h.answered(err)
}

func (h *host) StepFail(kind uint32, b []byte) int32 {
	h.alive()
	f, err := wire.DecodeFailure(abi.FuncStepFail, kind, b)
	if err != nil {
		return h.answered(err)
	}
	err = h.moved(h.calls.StepFail(h.ctx, f))
	if err == nil {
		h.inStep = false
	}
	return h.answered(err)
}

func (h *host) Sleep(name string, ms int64) int32 {
	h.alive()
	name = h.name(abi.FuncSleep, name)
	d, err := wire.Duration(ms)
	if err != nil {
		return h.answered(err)
	}
	return h.answered(h.moved(h.calls.Sleep(h.ctx, name, d)))
}

func (h *host) SleepUntil(name string, ms int64) int32 {
	h.alive()
	name = h.name(abi.FuncSleepUntil, name)
	t, err := wire.Until(ms, h.clock)
	if err != nil {
		return h.answered(err)
	}
	return h.answered(h.moved(h.calls.SleepUntil(h.ctx, name, t)))
}

func (h *host) WaitEvent(name, topic, key string, ms int64) int32 {
	h.alive()
	name, topic = h.name(abi.FuncWaitEvent, name), h.name(abi.FuncWaitEvent, topic)
	if _, err := wire.Key(abi.FuncWaitEvent, []byte(key)); err != nil {
		return h.answered(err)
	}
	d, err := wire.Duration(ms)
	if err != nil {
		return h.answered(err)
	}
	if ms < 0 {
		d = -1
	}
	b, at, err := h.calls.WaitEvent(h.ctx, abi.WaitParams{Name: name, Topic: topic, Key: key, Timeout: d})
	_ = h.moved(at, nil) // a wait that timed out has an instant too
	return h.yields(b, err)
}

func (h *host) Enqueue(b []byte) int32 {
	h.alive()
	runs, err := wire.DecodeEnqueue(b)
	if err != nil {
		return h.answered(err)
	}
	results, err := h.calls.Enqueue(h.ctx, runs)
	return h.yields(wire.AppendEnqueued(nil, results), err)
}

func (h *host) Publish(topic, key string, b []byte) int32 {
	h.alive()
	topic = h.name(abi.FuncPublish, topic)
	if _, err := wire.Key(abi.FuncPublish, []byte(key)); err != nil {
		return h.answered(err)
	}
	if err := wire.JSON(abi.FuncPublish, "the payload", b, abi.MaxInput); err != nil {
		return h.answered(err)
	}
	return h.answered(h.calls.Publish(h.ctx, abi.PublishParams{Topic: topic, Key: key, Payload: bytes.Clone(b)}))
}

func (h *host) Invoke(b []byte, limit int32) int32 {
	h.alive()
	runs, err := wire.DecodeInvoke(b)
	if err != nil {
		return h.answered(err)
	}
	if limit <= 0 || limit > abi.MaxInvoke {
		limit = abi.MaxInvoke
	}
	results, at, err := h.calls.Invoke(h.ctx, runs, int(limit))
	if err := h.moved(at, err); err != nil {
		return h.answered(err)
	}
	h.children = results
	return int32(len(results))
}

func (h *host) InvokeResult(i int32) int32 {
	h.alive()
	if int(uint32(i)) >= len(h.children) {
		h.unwind(&abi.Violation{Func: abi.FuncInvokeResult, Detail: fmt.Sprintf("there is no child %d", i)})
	}
	if f := h.children[i].Failure; f != nil {
		return h.answered(&abi.Refusal{Code: abi.CodeFailed, Failure: *f})
	}
	return h.yields(h.children[i].Output, nil)
}

func (h *host) HTTPFetch(b []byte) int32 {
	h.alive()
	r, err := wire.DecodeHTTPRequest(b)
	switch {
	case err != nil:
		return h.answered(err)
	case !h.inStep:
		return h.answered(&abi.Refusal{Code: abi.CodeInsideStepOnly})
	case h.can.HTTP == nil:
		return h.answered(&abi.Refusal{Code: abi.CodeDenied, Failure: abi.Failure{
			Message: "this test allows no HTTP", Fix: "set guesttest.Options.HTTP",
		}})
	}
	res, err := h.can.HTTP(guest.Request{
		Method: r.Method, URL: r.URL, Header: r.Headers, Body: r.Content, Timeout: time.Duration(r.TimeoutMS) * time.Millisecond,
	})
	var refusal *abi.Refusal
	if err != nil && !errors.As(err, &refusal) {
		err = &abi.Refusal{Code: abi.CodeFailed, Failure: abi.Failure{Message: err.Error()}}
	}
	if err != nil {
		return h.answered(err)
	}
	return h.yields(wire.AppendHTTPResponse(nil, abi.HTTPResponse{Status: res.Status, Headers: res.Header}, res.Body))
}

func (h *host) Secret(name string) int32 {
	h.alive()
	value, ok := h.can.Secrets[h.name(abi.FuncSecret, name)]
	if !ok {
		return h.answered(&abi.Refusal{Code: abi.CodeDenied, Failure: abi.Failure{
			Message: "this test grants no secret of that name", Fix: "set guesttest.Options.Secrets",
		}})
	}
	return h.yields([]byte(value), nil)
}

func (h *host) Output(b []byte) int32 {
	if err := wire.JSON(abi.FuncOutput, "the output", b, abi.MaxOutput); err != nil {
		return h.answered(err)
	}
	h.output = json.RawMessage(bytes.Clone(b))
	return 0
}

func (h *host) Fail(kind uint32, b []byte) int32 {
	h.alive()
	f, err := wire.DecodeFailure(abi.FuncFail, kind, b)
	if err != nil {
		return h.answered(err)
	}
	h.failure = &f
	return 0
}
