package guest

import (
	"encoding/json"
	"fmt"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// sdk is what a module's description says of this package.
const sdk = "go/1.0"

type handler struct {
	name string
	run  func(c *Ctx, input []byte) ([]byte, error)
}

var (
	handlers []handler
	warmers  []func()
)

// Job registers a handler under a name, which jobs.toml refers to. Call it from
// an init function; a name that is taken panics.
//
// In and Out cross as JSON. An input that does not fit In fails the run for
// good with X_JOB_INPUT_INVALID.
func Job[In, Out any](name string, fn func(ctx *Ctx, in In) (Out, error)) {
	for _, h := range handlers {
		if h.name == name {
			panic("guest: two handlers are named " + name)
		}
	}
	Warm[In]()
	Warm[Out]()
	handlers = append(handlers, handler{name, func(c *Ctx, input []byte) ([]byte, error) {
		var in In
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, Terminal(Coded(CodeInputInvalid, fmt.Errorf("the input does not fit the handler: %w", err)))
		}
		out, err := fn(c, in)
		if err != nil {
			return nil, err
		}
		return encode("the output", out)
	}})
}

// describe answers runner_describe.
func describe(h host) int32 {
	d := abi.Description{ABI: abi.Version, SDK: sdk}
	for _, r := range handlers {
		d.Handlers = append(d.Handlers, abi.Handler{Name: r.name})
	}
	return h.Output(wire.AppendDescription(nil, d))
}

// run answers runner_run.
func run(index int32, h host) int32 {
	if index < 0 || int(index) >= len(handlers) {
		f := abi.Failure{Message: fmt.Sprintf("the module has no handler number %d", index)}
		h.Fail(uint32(abi.FailTerminal), wire.AppendFailure(nil, f))
		return abi.RunFailed
	}
	c := &Ctx{h: h, buf: buffer()}
	err := guarded(func() error {
		out, err := handlers[index].run(c, c.result(h.Input()))
		if err != nil {
			return err
		}
		if n := h.Output(out); n < 0 {
			return c.refused(abi.FuncOutput, n)
		}
		return nil
	})
	if len(c.undo) > 0 {
		if undoing := c.compensate(); undoing != nil {
			err = undoing
		}
	}
	if err == nil {
		return abi.RunDone
	}
	f := failureOf(err)
	h.Fail(uint32(f.Kind), wire.AppendFailure(nil, f))
	return abi.RunFailed
}
