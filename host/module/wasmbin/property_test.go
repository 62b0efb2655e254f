package wasmbin_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/host/module/wasmbin"
)

// trial runs a module's exports and keeps what can be seen of it.
type trial struct {
	mod     api.Module
	stopped bool // a tick ran out of patience, or the native stack ended
	seen    []string
}

// perform calls each name with fixed arguments.
func (x *trial) perform(names []string) {
	for _, name := range names {
		if x.stopped {
			return
		}
		f := x.mod.ExportedFunction(name)
		args := make([]uint64, len(f.Definition().ParamTypes()))
		for i := range args {
			args[i] = uint64(i)*7 + 3
		}
		res, err := f.Call(context.Background(), args...)
		x.note(name, res, err)
	}
}

func (x *trial) note(name string, res []uint64, err error) {
	if errors.Is(err, stop{}) || err != nil && strings.Contains(err.Error(), "stack overflow") {
		x.stopped = true
		return
	}
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		x.seen = append(x.seen, name+": "+first)
		return
	}
	for i, typ := range x.mod.ExportedFunction(name).Definition().ResultTypes() {
		if (typ == api.ValueTypeExternref || typ == 0x70) && res[i] != 0 {
			res[i] = 1 // an address, or an argument
		}
	}
	x.seen = append(x.seen, fmt.Sprint(name, ": ", res))
}

// state is a digest of memory and exported globals.
func (x *trial) state(globals []string) string {
	var b strings.Builder
	if m := x.mod.Memory(); m != nil {
		bytes, _ := m.Read(0, m.Size())
		fmt.Fprintf(&b, "memory %d %x", m.Size(), wasmbinHash(bytes))
	}
	for _, g := range globals {
		if v := x.mod.ExportedGlobal(g); v.Type() != api.ValueTypeExternref && v.Type() != 0x70 { // references are addresses
			fmt.Fprintf(&b, " %s=%x", g, v.Get())
		}
	}
	return b.String()
}

func wasmbinHash(b []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// engines are runtimes that run modules with at most that many pages.
func engines(pages uint32) map[string]wazero.RuntimeConfig {
	return map[string]wazero.RuntimeConfig{
		"interpreter": wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(features).WithMemoryLimitPages(pages),
		"compiler":    wazero.NewRuntimeConfig().WithCoreFeatures(features).WithMemoryLimitPages(pages),
	}
}

// compareParams is what compare runs.
type compareParams struct {
	config   wazero.RuntimeConfig
	raw      []byte
	rw       *wasmbin.Rewritten
	quantum  uint64
	patience int // ticks
}

// compare runs a module plain and metered and reports a difference. The
// metered one goes first: if it ends, so does the plain one.
func compare(p compareParams) (ran bool, ticks int, err error) {
	ctx := context.Background()
	var names, globals []string
	for _, x := range p.rw.Report.Exports {
		switch x.Kind {
		case wasmbin.KindFunc:
			names = append(names, x.Name)
		case wasmbin.KindGlobal:
			globals = append(globals, x.Name)
		}
	}
	if len(names) > 8 {
		names = names[:8]
	}
	rt := wazero.NewRuntimeWithConfig(ctx, p.config)
	defer rt.Close(ctx)
	tick := api.GoFunc(func(_ context.Context, stack []uint64) {
		if ticks++; ticks > p.patience {
			panic(stop{})
		}
		stack[0] = p.quantum
	})
	if _, err := rt.NewHostModuleBuilder(options.MeterModule).NewFunctionBuilder().
		WithGoFunction(tick, nil, []api.ValueType{api.ValueTypeI32}).Export(options.MeterTick).Instantiate(ctx); err != nil {
		return false, 0, err
	}
	twice := api.GoFunc(func(_ context.Context, stack []uint64) { stack[0] = uint64(uint32(stack[0]) * 2) })
	word := []api.ValueType{api.ValueTypeI32}
	if _, err := rt.NewHostModuleBuilder("test").NewFunctionBuilder().WithGoFunction(twice, word, word).Export("twice").Instantiate(ctx); err != nil {
		return false, 0, err
	}
	named := func(n string) wazero.ModuleConfig { return wazero.NewModuleConfig().WithName(n).WithStartFunctions() }
	metered := &trial{}
	var failed error
	if metered.mod, failed = rt.InstantiateWithConfig(ctx, p.rw.Bytes, named("metered")); failed == nil {
		for _, s := range p.rw.Data {
			if !metered.mod.Memory().Write(s.Offset, s.Bytes) {
				return false, 0, fmt.Errorf("segment of %d bytes at %d does not fit", len(s.Bytes), s.Offset)
			}
		}
		if p.rw.Start != "" {
			_, failed = metered.mod.ExportedFunction(p.rw.Start).Call(ctx)
			if errors.Is(failed, stop{}) {
				return false, ticks, nil
			}
		}
	}
	if failed == nil {
		metered.perform(names)
	}
	if metered.stopped {
		return false, ticks, nil
	}
	plain := &trial{}
	var err2 error
	plain.mod, err2 = rt.InstantiateWithConfig(ctx, p.raw, named("plain"))
	if (failed == nil) != (err2 == nil) {
		return false, ticks, fmt.Errorf("instantiated metered: %v, plain: %v", failed, err2)
	}
	if failed != nil {
		return false, ticks, nil
	}
	plain.perform(names)
	if plain.stopped {
		return false, ticks, nil
	}
	if a, b := strings.Join(metered.seen, "\n"), strings.Join(plain.seen, "\n"); a != b {
		return true, ticks, fmt.Errorf("results differ\nmetered:\n%s\nplain:\n%s", a, b)
	}
	if a, b := metered.state(globals), plain.state(globals); a != b {
		return true, ticks, fmt.Errorf("state differs\nmetered: %s\nplain:   %s", a, b)
	}
	return true, ticks, nil
}

// Random modules, run with next to no fuel at a time, do what they do plain:
// the same results, traps, memory and globals, in both of wazero's engines.
func TestRandomModulesDoTheSameMetered(t *testing.T) {
	count := 150
	if testing.Short() {
		count = 50
	}
	ran := 0
	for seed := range uint64(count) {
		raw := build(t, generate(seed))
		rw, err := wasmbin.Rewrite(raw, options)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		rnd := rand.New(rand.NewPCG(seed, 2))
		for name, config := range engines(rw.Report.MemoryMax) {
			ok, _, err := compare(compareParams{config: config, raw: raw, rw: rw, quantum: rnd.Uint64N(40), patience: 20_000})
			if err != nil {
				t.Errorf("seed %d, %s: %v", seed, name, err)
			}
			if ok {
				ran++
			}
		}
	}
	if ran < count { // of twice that many
		t.Errorf("only %d of %d runs came to an end: the generator has lost its use", ran, 2*count)
	}
}
