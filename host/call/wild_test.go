package call

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
)

// wildCall is one call of fn by a guest of its own, inside a step or not. What
// it ends the attempt with is nil if the guest goes on.
func wildCall(t *testing.T, mod api.Module, fn string, inStep bool, args []uint64) *abi.Outcome {
	t.Helper()
	m := abitest.NewMemory(abitest.Config{})
	a := m.Attempt("h", []byte(`{"n":1}`))
	s, err := Begin(t.Context(), BeginParams{Attempt: &a, Calls: m, Capabilities: fakeCaps{
		env:   []string{"A=1"},
		fetch: func(abi.HTTPRequest, []byte) (abi.HTTPResponse, []byte, error) { return abi.HTTPResponse{}, nil, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Enter()
	s.inStep, s.result = inStep, []byte("a last result, longer than eight bytes")
	if _, err = mod.ExportedFunction(fn).Call(s, args...); err == nil {
		return nil
	}
	out, _ := s.End(Ended{Export: abi.ExportRun, Err: err})
	return &out
}

// Every function of every module that a guest may import is given wild numbers
// in every argument, and in every pair of neighbours. A function that is new
// in the contract is here by itself.
func TestNoArgumentOfAnyFunctionHurtsTheHost(t *testing.T) {
	mod := instantiate(t)
	size := uint64(mod.Memory().Size())
	memory, _ := mod.Memory().Read(0, uint32(size))
	wild := []uint64{0, 1, 7, 8, 0xffff, size - 1, size, size + 1, 1<<31 - 1, 1 << 31, 1<<32 - 8, 1<<32 - 1, 1<<63 - 1, 1 << 63, 1<<64 - 1}
	for _, f := range slices.Concat(abi.Imports, abi.WASIImports, abi.EnvImports) {
		try := func(args []uint64) {
			for _, inStep := range []bool{false, true} {
				if f.Name == "poll_oneoff" {
					clear(memory) // what else lies there would be a time to wait for, which it would do
				}
				out := wildCall(t, mod, f.Name, inStep, args)
				if out == nil || out.Kind != abi.Crashed {
					continue
				}
				switch out.Failure.Code {
				case abi.CodeABIViolation, abi.CodeGuestExit, abi.CodeGuestNoOutput, abi.CodeGuestTrap:
				default:
					t.Errorf("%s%x ends the attempt with %+v, %v", f.Name, args, out.Failure, out.Err)
				}
			}
		}
		for i := range f.Params {
			for _, x := range wild {
				args := tame(f)
				args[i] = x
				try(args)
				for _, y := range wild {
					if i+1 < len(args) {
						args[i+1] = y
						try(args)
					}
				}
			}
		}
	}
}

// tame are arguments of f that lie within memory, whatever they are taken for.
func tame(f abi.Func) []uint64 {
	args := make([]uint64, len(f.Params))
	for i := range args {
		args[i] = 1024
		if i%2 == 1 {
			args[i] = 8
		}
	}
	return args
}

// Whatever runner_v1 takes as a pointer and a length has to lie in memory, be it
// read or written. Functions with two parameters and more take at least one.
func TestEveryPointerIsChecked(t *testing.T) {
	mod := instantiate(t)
	size := uint64(mod.Memory().Size())
	for _, f := range abi.Imports {
		if len(f.Params) < 2 {
			continue
		}
		checked := 0
		for i := range len(f.Params) - 1 {
			for _, at := range []struct{ p, n uint64 }{{size - 4, 8}, {size, 1}, {1<<32 - 4, 8}, {8, 1<<32 - 1}} {
				args := make([]uint64, len(f.Params))
				// What comes before, as the name of wait_event, is good.
				mod.Memory().WriteString(1024, "name")
				for j := 0; j+1 < i; j += 2 {
					args[j], args[j+1] = 1024, 4
				}
				args[i], args[i+1] = at.p, at.n
				for _, inStep := range []bool{false, true} {
					out := wildCall(t, mod, f.Name, inStep, args)
					var v *abi.Violation
					if out != nil && errors.As(out.Err, &v) && v.Func == f.Name && strings.Contains(v.Detail, "outside its memory") {
						checked++
						break
					}
				}
			}
		}
		want := 4
		switch f.Name {
		case abi.FuncPublish, abi.FuncWaitEvent:
			want = 3 * 4
		case abi.FuncResultRead: // copies no more than there is
			want = 3
		}
		if checked < want {
			t.Errorf("%s%s: %d wild pointers were found out, want %d", f.Name, f.Signature(), checked, want)
		}
	}
}

// What AssemblyScript's trace is given to say counts as work, as for log.
func TestATraceCountsWhatItSays(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	const bytes = 8 << 10
	if !g.mod.Memory().WriteUint32Le(1020, bytes) {
		t.Fatal("no memory")
	}
	before := g.state.work
	g.call("trace", 1024, 0, 0, 0, 0, 0, 0)
	if got := g.state.work - before; got < bytes {
		t.Errorf("%d bytes count for %d", bytes, got)
	}
}
