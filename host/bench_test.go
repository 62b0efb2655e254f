package host

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/call"
	"github.com/jobrunner/runner/host/capability"
	"github.com/jobrunner/runner/host/module"
)

// smallGuest is about what a C or Rust handler does: two steps, a sleep, an
// enqueue and an output, four written pages.
func smallGuest(b *testing.B) []byte {
	f := newFixture(3, 16)
	f.handler("signup", func(c *wasmasm.Code) {
		f.do(c, abi.FuncInput)
		f.do(c, abi.FuncResultRead, 0, 64, 0)
		for _, step := range []string{"create", "count"} {
			f.do(c, abi.FuncStepBegin, step, 0)
			f.do(c, abi.FuncStepEnd, `{"id":"org_acme"}`)
		}
		for page := range int32(4) {
			c.I32Const(65536+page*4096).I32Const(1).Mem(wasmasm.I32Store, 0)
		}
		p, n := f.text("cooldown")
		c.I32Const(p).I32Const(n).I64Const(1000).Call(f.imports[abi.FuncSleep]).Op(wasmasm.Drop)
		f.do(c, abi.FuncEnqueue, `{"job":"digest","input":{"org":"acme"}}`)
		f.done(c, `{"ok":true,"id":"org_acme","n":6}`)
	})
	return f.bytes(b)
}

func runBench(b *testing.B, g abi.Guest, a abi.Attempt) {
	b.Helper()
	calls := &idle{}
	for range 100 {
		if out := g.Run(b.Context(), a, calls); out.Kind != abi.Done {
			b.Fatalf("outcome %+v", out)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if out := g.Run(b.Context(), a, calls); out.Kind != abi.Done {
			b.Fatalf("outcome %+v", out)
		}
	}
}

// idle is a script that keeps nothing.
type idle struct{ script }

func (*idle) StepEnd(context.Context, []byte) (time.Time, error) { return epoch, nil }

// BenchmarkSmallGuest is a whole attempt of the small guest, reset included.
func BenchmarkSmallGuest(b *testing.B) {
	runBench(b, load(b, newHost(b, Config{}), smallGuest(b)), attempt("signup"))
}

// BenchmarkGoGuest is a whole attempt of the smallest Go handler, and of one
// with two steps.
func BenchmarkGoGuest(b *testing.B) {
	_, g := goGuest(b)
	for _, handler := range []string{"noop", "signup"} {
		b.Run(handler, func(b *testing.B) { runBench(b, g, withInput(handler, `{"org":"acme","n":5}`)) })
	}
}

// BenchmarkPlainWazeroGoGuest is what the same costs with a new instance for
// every attempt and no rewriting: compiled once, instantiated, initialised,
// called.
func BenchmarkPlainWazeroGoGuest(b *testing.B) {
	bytes, err := goModule()
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(module.Features))
	defer rt.Close(ctx)
	if err := call.Register(ctx, rt, module.MeterModule, module.MeterTick); err != nil {
		b.Fatal(err)
	}
	cm, err := rt.CompileModule(ctx, bytes)
	if err != nil {
		b.Fatal(err)
	}
	caps, err := capability.NewOutside(capability.Config{}).Grant(capability.Grants{})
	if err != nil {
		b.Fatal(err)
	}
	a := withInput("noop", `{"org":"acme","n":5}`)
	for b.Loop() {
		m, err := rt.InstantiateModule(ctx, cm, wazero.NewModuleConfig().WithName("").WithStartFunctions())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := m.ExportedFunction(abi.ExportInitialize).Call(call.BringUp(ctx, caps)); err != nil {
			b.Fatal(err)
		}
		s, err := call.Begin(ctx, call.BeginParams{Attempt: &a, Calls: &idle{}, Capabilities: caps})
		if err != nil {
			b.Fatal(err)
		}
		res, err := m.ExportedFunction(abi.ExportRun).Call(s, 0)
		if out, _ := s.End(call.Ended{Result: uint32(res[0]), Err: err}); out.Kind != abi.Done {
			b.Fatalf("outcome %+v", out)
		}
		m.Close(ctx)
	}
}

// BenchmarkThroughput is what all processors do together.
func BenchmarkThroughput(b *testing.B) {
	small := load(b, newHost(b, Config{}), smallGuest(b))
	_, g := goGuest(b)
	for name, c := range map[string]struct {
		g abi.Guest
		a abi.Attempt
	}{"small": {small, attempt("signup")}, "go": {g, withInput("signup", `{"org":"acme","n":5}`)}} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				calls := &idle{}
				for pb.Next() {
					if out := c.g.Run(context.Background(), c.a, calls); out.Kind != abi.Done {
						b.Errorf("outcome %+v", out)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}

// BenchmarkHeartbeatBesideBusyGuests is the longest time for which a goroutine
// with a 5 ms ticker, such as one that renews a lease, does not get to run
// beside four guests that compute, with a garbage collection in the middle. The
// same beside four goroutines that compute says what the machine adds.
func BenchmarkHeartbeatBesideBusyGuests(b *testing.B) {
	_, g := goGuest(b)
	for name, work := range map[string]func(){
		"guests": func() {
			if out := g.Run(context.Background(), withInput("work", `{"n":200}`), &idle{}); out.Kind != abi.Done {
				b.Errorf("outcome %+v", out)
			}
		},
		"goroutines": func() {
			h := uint64(14695981039346656037)
			for n := range 400_000_000 {
				h = (h ^ uint64(n)) * 1099511628211
			}
			sum.Add(h)
		},
	} {
		b.Run(name, func(b *testing.B) {
			var worst time.Duration
			for b.Loop() {
				worst = max(worst, heartbeatGap(work))
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "max-gap-ms")
		})
	}
}

var sum atomic.Uint64 // keeps work from being optimised away

// heartbeatGap is the longest gap while four goroutines do work.
func heartbeatGap(work func()) time.Duration {
	var stop atomic.Bool
	var worst time.Duration
	var beats, busy sync.WaitGroup
	beats.Add(1)
	go func() {
		defer beats.Done()
		t := time.NewTicker(5 * time.Millisecond)
		defer t.Stop()
		last := time.Now()
		for !stop.Load() {
			<-t.C
			now := time.Now()
			worst = max(worst, now.Sub(last))
			last = now
		}
	}()
	for range 4 {
		busy.Add(1)
		go func() {
			defer busy.Done()
			work()
		}()
	}
	runtime.GC()
	busy.Wait()
	stop.Store(true)
	beats.Wait()
	return worst
}

// resident is the process's memory in MB, and how much of it nobody shares.
func resident() (rss, anon float64) {
	runtime.GC()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch name {
		case "VmRSS":
			rss = kb / 1024
		case "RssAnon":
			anon = kb / 1024
		}
	}
	return rss, anon
}

// BenchmarkResidentGoGuests is what a thousand instances of a Go module keep:
// right after an attempt each, and once they are trimmed.
func BenchmarkResidentGoGuests(b *testing.B) {
	bytes, err := goModule()
	if err != nil {
		b.Fatal(err)
	}
	const n = 1000
	for b.Loop() {
		h := newHost(b, Config{CPUSlots: 2})
		g := load(b, h, bytes)
		rss0, anon0 := resident()
		var wait, running sync.WaitGroup
		release := make(chan struct{})
		for range n { // all are in a step at the same time, so each needs an instance
			wait.Add(1)
			running.Add(1)
			go func() {
				defer wait.Done()
				first := true
				calls := &idle{script{onBegin: func(context.Context, string) error {
					if first {
						first = false
						running.Done()
						<-release
					}
					return nil
				}}}
				if out := g.Run(context.Background(), withInput("signup", `{"org":"acme","n":5}`), calls); out.Kind != abi.Done {
					b.Errorf("outcome %+v", out)
				}
			}()
		}
		running.Wait()
		close(release)
		wait.Wait()
		for h.Stats().Instances.Idle < n {
			runtime.Gosched()
		}
		warmRSS, warmAnon := resident()
		b.ReportMetric(warmRSS-rss0, "warm-MB")
		b.ReportMetric(warmAnon-anon0, "warm-anon-MB")
		h.Trim(time.Now().Add(15 * time.Second))
		idleRSS, idleAnon := resident()
		b.ReportMetric(idleRSS-rss0, "idle-MB")
		b.ReportMetric(idleAnon-anon0, "idle-anon-MB")
		if got := h.Stats().Instances; got.Idle != n {
			b.Fatalf("%d idle instances: %+v", got.Idle, got)
		}
	}
}
