package call

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
)

// A loop around calls may burn no fuel for as long as it likes: the calls
// themselves stop it, whichever they are.
func TestEveryCallStopsAnAttemptWhoseContextEndedBeforeLong(t *testing.T) {
	const calls = workQuantum/callWork + 1
	for _, fn := range slices.Concat(slices.Sorted(maps.Keys(table)), slices.Sorted(maps.Keys(wasiTable)), slices.Sorted(maps.Keys(envTable))) {
		ctx, cancel := context.WithCancelCause(t.Context())
		g := beginWith(t, ctx, BeginParams{Attempt: &abi.Attempt{}, Calls: &fakeCalls{}})
		cancel(errUp)
		args := make([]uint64, len(g.mod.ExportedFunction(fn).Definition().ParamTypes()))
		n, unwound := 0, false
		for ; n < calls && !unwound; n++ {
			_, unwound = g.try(fn, args...)
		}
		if !unwound {
			t.Errorf("%s: %d calls, and the guest goes on", fn, n)
		}
		if n > 1 && g.state.err != errUp {
			t.Errorf("%s: ended by %v", fn, g.state.err)
		}
	}
}

// The more a call is given to do, the sooner it is a tick.
func TestACallThatIsGivenMuchToDoIsATick(t *testing.T) {
	const much = 1 << 20
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errUp)
	for name, call := range map[string]func(g *guest, p uint64) bool{
		abi.FuncRandom: func(g *guest, p uint64) bool { _, stopped := g.try(abi.FuncRandom, p, much); return stopped },
		"random_get":   func(g *guest, p uint64) bool { _, stopped := g.try("random_get", p, much); return stopped },
		abi.FuncLog:    func(g *guest, p uint64) bool { _, stopped := g.try(abi.FuncLog, 1, p, much); return stopped },
		abi.FuncOutput: func(g *guest, p uint64) bool { _, stopped := g.try(abi.FuncOutput, p, much+1); return stopped },
		abi.FuncResultRead: func(g *guest, p uint64) bool {
			g.state.result = make([]byte, much)
			_, stopped := g.try(abi.FuncResultRead, p, much, 0)
			return stopped
		},
	} {
		g := beginWith(t, context.Background(), BeginParams{Attempt: &abi.Attempt{}, Calls: &fakeCalls{}})
		if call(g, 1024) {
			t.Errorf("%s: unwound: %v", name, g.state.err)
		}
		g.state.Context = ctx
		if !call(g, 1024) || g.state.err != errUp {
			t.Errorf("%s: the guest goes on: %v", name, g.state.err)
		}
	}
}

// However much chance a guest asks for in one call, it is stopped in the middle.
func TestALongCallStopsInTheMiddle(t *testing.T) {
	g := beginWith(t, t.Context(), BeginParams{Attempt: &abi.Attempt{Seed: 7}, Calls: &fakeCalls{}})
	whole := make([]byte, 3*randomPart+5)
	g.state.fillRandom(whole)
	same := random{state: 7}
	want := make([]byte, len(whole))
	same.fill(want)
	if !slices.Equal(whole, want) {
		t.Error("filled in parts, it is not the run's sequence")
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errUp)
	g.state.Context = ctx
	rest := make([]byte, 2*randomPart)
	func() {
		defer func() { _ = recover() }()
		g.state.fillRandom(rest)
	}()
	if g.state.err != errUp || !slices.Equal(rest[randomPart:], make([]byte, randomPart)) {
		t.Errorf("filled to its end: %v", g.state.err)
	}
}

// Calls hand a contended slot over too.
func TestAGuestThatOnlyCallsMakesRoom(t *testing.T) {
	slots := NewSlots(1)
	p := BeginParams{Attempt: &abi.Attempt{}, Calls: &fakeCalls{}, Slots: slots}
	g := beginWith(t, t.Context(), p)
	p.Capabilities = fakeCaps{}
	got := make(chan struct{})
	go func() {
		defer close(got)
		s, err := Begin(t.Context(), p)
		if err != nil {
			t.Error(err)
			return
		}
		s.Close()
	}()
	for {
		select {
		case <-got:
			return
		default:
			g.call(abi.FuncNow)
			g.state.ticket.taken -= time.Second // its slice is over
		}
	}
}
