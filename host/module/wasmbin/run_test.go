package wasmbin_test

import (
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/host/module/wasmbin"
)

var options = wasmbin.Options{MeterModule: "runner_meter", MeterTick: "tick"}

const features = api.CoreFeaturesV2 | api.CoreFeatureSIMD<<3 // and extended-const

func rewrite(tb testing.TB, b []byte) *wasmbin.Rewritten {
	tb.Helper()
	r, err := wasmbin.Rewrite(b, options)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// stop is what a tick panics with.
type stop struct{}

func (stop) Error() string { return "stopped at a tick" }

// meterOf is the host's side of a test's ticks.
type meterOf struct {
	quantum uint64
	ticks   int
	most    int // panic at the tick after that many; 0 is never
}

// instance runs a module, with the meter if it was rewritten.
func instance(tb testing.TB, config wazero.RuntimeConfig, b []byte, m *meterOf) api.Module {
	tb.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(features))
	tb.Cleanup(func() { rt.Close(ctx) })
	if m != nil {
		tick := api.GoFunc(func(_ context.Context, stack []uint64) {
			m.ticks++
			if m.most > 0 && m.ticks > m.most {
				panic(stop{})
			}
			stack[0] = m.quantum
		})
		_, err := rt.NewHostModuleBuilder(options.MeterModule).NewFunctionBuilder().
			WithGoFunction(tick, nil, []api.ValueType{api.ValueTypeI32}).Export(options.MeterTick).Instantiate(ctx)
		if err != nil {
			tb.Fatal(err)
		}
	}
	mod, err := rt.InstantiateWithConfig(ctx, b, wazero.NewModuleConfig())
	if err != nil {
		tb.Fatal(err)
	}
	return mod
}

func call(tb testing.TB, m api.Module, name string, args ...uint64) uint64 {
	tb.Helper()
	res, err := m.ExportedFunction(name).Call(context.Background(), args...)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return res[0]
}

func TestKernelsGiveTheSameResultsMetered(t *testing.T) {
	b := kernelModule(t)
	for _, engine := range []struct {
		name   string
		config wazero.RuntimeConfig
	}{{"compiler", wazero.NewRuntimeConfig()}, {"interpreter", wazero.NewRuntimeConfigInterpreter()}} {
		plain := instance(t, engine.config, b, nil)
		for _, quantum := range []uint64{0, 1, 7, 20_000} {
			meter := &meterOf{quantum: quantum}
			metered := instance(t, engine.config, rewrite(t, b).Bytes, meter)
			for _, k := range kernels {
				meter.ticks = 0
				want, got := call(t, plain, k.name, k.few), call(t, metered, k.name, k.few)
				if got != want {
					t.Errorf("%s, %s, quantum %d: got %d, want %d", engine.name, k.name, quantum, got, want)
				}
				if meter.ticks == 0 && quantum < 20_000 {
					t.Errorf("%s, %s, quantum %d: no tick", engine.name, k.name, quantum)
				}
			}
		}
	}
}

func BenchmarkKernel(b *testing.B) {
	raw := kernelModule(b)
	plain := instance(b, wazero.NewRuntimeConfig(), raw, nil)
	metered := instance(b, wazero.NewRuntimeConfig(), rewrite(b, raw).Bytes, &meterOf{quantum: 20_000})
	for _, k := range kernels {
		for _, v := range []struct {
			name string
			mod  api.Module
		}{{"plain", plain}, {"metered", metered}} {
			b.Run(k.name+"/"+v.name, func(b *testing.B) {
				f := v.mod.ExportedFunction(k.name)
				for b.Loop() {
					if _, err := f.Call(b.Context(), k.arg); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
