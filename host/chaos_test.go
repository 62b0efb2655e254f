package host

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
)

var (
	chaosRounds = flag.Int("chaos", 150, "attempts of each worker in the chaos test")
	chaosSeed   = flag.Uint64("chaosseed", 1, "seed of the chaos test; 0 takes one from the clock")
)

// TestChaos runs good attempts among ones that are suspended, cancelled at a
// random tick, trapped, out of memory or dead, on more workers than slots, with
// the pool trimmed meanwhile. Every good attempt must give the output of its own
// input: a byte left over from another would show.
func TestChaos(t *testing.T) {
	b, err := goModule()
	if err != nil {
		t.Fatal(err)
	}
	seed := *chaosSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed: -chaosseed=%d", seed)
	// A low quantum makes many ticks.
	h := newHost(t, Config{MemoryLimit: 16 << 20, Quantum: 500})
	golang, small := load(t, h, b), load(t, h, hostile(t))

	var good, bad atomic.Int64
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range *chaosRounds {
				if kind, ok := chaosAttempt(t, rng, golang, small); ok {
					good.Add(1)
				} else if bad.Add(1); bad.Load() < 5 {
					t.Errorf("worker %d, round %d: a wrong end of %s", w, i, kind)
				}
				if rng.IntN(50) == 0 {
					h.Trim(time.Now().Add(time.Duration(rng.IntN(70)) * time.Second))
				}
			}
		}()
	}
	wg.Wait()
	s := settled(h)
	if s.SlotsUsed != 0 || s.Running != 0 {
		t.Errorf("something is left: %+v", s)
	}
	t.Logf("%d as expected, %d not; %+v", good.Load(), bad.Load(), s.Instances)
}

// chaosAttempt runs an attempt and says what it was and whether it ended as it
// should.
func chaosAttempt(t *testing.T, rng *rand.Rand, golang, small abi.Guest) (kind string, ok bool) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	org, n := fmt.Sprint("o", rng.Uint64()), rng.IntN(1<<30)
	signup := withInput("signup", fmt.Sprintf(`{"org":%q,"n":%d}`, org, n))
	want := fmt.Sprintf(`{"ok":true,"id":"org_%s","n":%d}`, org, n+1)
	done := func(out abi.Outcome) bool { return out.Kind == abi.Done && string(out.Output) == want }
	crashed := func(out abi.Outcome, code string) bool { return out.Kind == abi.Crashed && out.Failure.Code == code }

	switch rng.IntN(12) {
	case 0:
		out := golang.Run(ctx, signup, &script{suspend: "cooldown"})
		return "a suspension", out.Kind == abi.Stopped && out.Err == errSuspended && done(golang.Run(ctx, signup, &script{}))
	case 1:
		g, handler := golang, "spin"
		if rng.IntN(2) == 0 {
			g, handler = small, []string{"loop", "fill"}[rng.IntN(2)]
		}
		calls := &script{onBegin: func(context.Context, string) error { go cancel(errLost); return nil }}
		out := g.Run(ctx, withInput(handler, `{}`), calls)
		return "a cancelled " + handler, out.Kind == abi.Stopped && out.Err == errLost
	case 2:
		handler, code := "deadlock", abi.CodeGuestDeadlock
		if rng.IntN(2) == 0 {
			handler, code = "panic-elsewhere", abi.CodeGuestTrap
		}
		return handler, crashed(golang.Run(ctx, withInput(handler, `{}`), &script{}), code)
	case 3:
		return "out of memory", crashed(golang.Run(ctx, withInput("alloc", `{"n":100}`), &script{}), abi.CodeGuestMemory)
	case 4:
		return "bomb", crashed(small.Run(ctx, attempt("bomb"), &script{}), abi.CodeGuestMemory)
	case 5:
		return "exit", crashed(golang.Run(ctx, withInput("exit", `{"n":4}`), &script{}), abi.CodeGuestExit)
	case 6:
		out := golang.Run(ctx, withInput("alloc", `{"n":6}`), &script{})
		return "much memory", out.Kind == abi.Done
	case 7:
		calls := &script{onBegin: func(context.Context, string) error { panic("a bug of the host") }}
		return "a host failure", crashed(golang.Run(ctx, signup, calls), abi.CodeHostFailure)
	case 8:
		// stopped at any point, or done before that
		go cancel(errLost)
		out := golang.Run(ctx, signup, &script{})
		return "a race with its end", done(out) || out.Kind == abi.Stopped && out.Err == errLost
	}
	return "signup", done(golang.Run(ctx, signup, &script{}))
}
