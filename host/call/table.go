package call

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// body is what a host function does: it takes its parameters from the stack
// and puts its result there. mem is the calling guest's memory.
type body func(s *State, mem api.Memory, stack []uint64)

// table has the body of each function of abi.Imports.
var table = map[string]body{
	abi.FuncAttempt:      attempt,
	abi.FuncCompensate:   compensate,
	abi.FuncEnqueue:      enqueue,
	abi.FuncFail:         fail,
	abi.FuncFeatures:     features,
	abi.FuncHTTPFetch:    httpFetch,
	abi.FuncInput:        input,
	abi.FuncInvoke:       invoke,
	abi.FuncInvokeResult: invokeResult,
	abi.FuncLog:          logLine,
	abi.FuncMeta:         meta,
	abi.FuncNow:          now,
	abi.FuncOutput:       output,
	abi.FuncProgress:     progress,
	abi.FuncPublish:      publish,
	abi.FuncRandom:       randomBytes,
	abi.FuncResultLen:    resultLen,
	abi.FuncResultRead:   resultRead,
	abi.FuncSecret:       secret,
	abi.FuncSleep:        sleep,
	abi.FuncSleepUntil:   sleepUntil,
	abi.FuncSQL:          sql,
	abi.FuncStepBegin:    stepBegin,
	abi.FuncStepEnd:      stepEnd,
	abi.FuncStepFail:     stepFail,
	abi.FuncWaitEvent:    waitEvent,
}

// Register serves every module that a guest may import on rt. meter and tick
// name the function that compiled modules import besides, to be stopped by.
func Register(ctx context.Context, rt wazero.Runtime, meter, tick string) error {
	if err := registerMeter(ctx, rt, meter, tick); err != nil {
		return err
	}
	if err := serve(ctx, rt, abi.ImportModule, abi.Imports, table); err != nil {
		return err
	}
	if err := serve(ctx, rt, abi.WASIModule, abi.WASIImports, wasiTable); err != nil {
		return err
	}
	return serve(ctx, rt, abi.EnvModule, abi.EnvImports, envTable)
}

// serve makes a host module of funcs.
func serve(ctx context.Context, rt wazero.Runtime, module string, funcs []abi.Func, bodies map[string]body) error {
	b := rt.NewHostModuleBuilder(module)
	for _, f := range funcs {
		do, ok := bodies[f.Name]
		if !ok {
			return fmt.Errorf("call: host function %s.%s has no body", module, f.Name)
		}
		export(b, f.Name, valueTypes(f.Params), valueTypes(f.Results), do)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("call: serve %s: %w", module, err)
	}
	return nil
}

// export adds a function to a host module.
func export(b wazero.HostModuleBuilder, name string, params, results []api.ValueType, do body) {
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, m api.Module, stack []uint64) {
		s := from(ctx)
		if s.recorder != nil {
			s.recorder.call(name, params, stack)
		}
		do(s, m.Memory(), stack)
		s.worked()
	}), params, results).Export(name)
}

func valueTypes(in []abi.ValType) []api.ValueType {
	out := make([]api.ValueType, len(in))
	for i, t := range in {
		out[i] = api.ValueType(t)
	}
	return out
}
