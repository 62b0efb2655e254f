// Package abitest is the compatibility kit of the contract in package abi: cases
// that a host runs over its abi.Guest (TestGuest), cases that an engine runs
// over its abi.Calls (TestCalls), and Memory, a reference abi.Calls that keeps
// one run in a Go value, under a clock that only moves when told to.
//
// It is for tests of any implementation, ours or another's, and nothing but a
// test imports it.
//
// A host's test of its own takes ten lines:
//
//	m := abitest.NewMemory(abitest.Config{})
//	out := guest.Run(ctx, m.Attempt("handler", []byte(`{"n":1}`)), m)
//	if out.Kind != abi.Done {
//		t.Fatalf("%+v", out)
//	}
//	want := []string{`step_begin "a"`, `step_end "a" {"id":7}`}
//	if !slices.Equal(m.Transcript(), want) { … }
//
// Drive runs attempts until the run is settled.
package abitest
