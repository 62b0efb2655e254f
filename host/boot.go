package host

import (
	"context"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/host/call"
	"github.com/jobrunner/runner/host/capability"
	"github.com/jobrunner/runner/host/instance"
)

// bringUp starts a new instance, lets it warm up, and asks it what it is. All
// of it ends up in the image that attempts start from.
func bringUp(ctx context.Context, in *instance.Instance, caps *capability.Set) (abi.Description, error) {
	s := call.BringUp(ctx, caps)
	for _, e := range []instance.Export{instance.Start, instance.Initialize, instance.Warm} {
		if !in.Has(e) {
			continue
		}
		if err := step(s, in, e); err != nil {
			return abi.Description{}, err
		}
	}
	return describe(s, in)
}

// describe calls runner_describe.
func describe(s *call.State, in *instance.Instance) (abi.Description, error) {
	s.Describing()
	if err := step(s, in, instance.Describe); err != nil {
		return abi.Description{}, err
	}
	d, err := wire.DecodeDescription(s.Output())
	if err != nil {
		return d, &abi.Error{Code: call.CodeModuleInit, Message: err.Error(), Fix: "build the module with a current SDK", Err: err}
	}
	return d, nil
}

// probe lets an instance describe itself again, and answers a transcript of it.
func probe(ctx context.Context, in *instance.Instance, caps *capability.Set) ([]byte, error) {
	s := call.Probe(ctx, caps)
	if _, err := describe(s, in); err != nil {
		return nil, err
	}
	return s.Transcript(), nil
}

func step(s *call.State, in *instance.Instance, e instance.Export) error {
	s.Enter()
	result, err := in.Call(s, e, 0, s.Fuel())
	return s.Check(ended(in, e, result, err))
}

func ended(in *instance.Instance, e instance.Export, result uint64, err error) call.Ended {
	return call.Ended{
		Export: e.String(), Result: uint32(result), Err: err,
		Memory: in.MemoryBytes(), Limit: in.MemoryLimit(), Refused: in.Refused(),
	}
}
