package call

import (
	"bytes"
	"testing"

	"github.com/jobrunner/runner/abi"
)

func TestATranscriptTellsCallsApartAndNothingElse(t *testing.T) {
	mod := instantiate(t)
	transcript := func(calls func(call func(fn string, args ...uint64))) []byte {
		s := Probe(t.Context(), fakeCaps{})
		calls(func(fn string, args ...uint64) {
			if _, err := mod.ExportedFunction(fn).Call(s, args...); err != nil {
				t.Fatal(err)
			}
		})
		return s.Transcript()
	}
	type call = func(fn string, args ...uint64)
	base := transcript(func(c call) { c(abi.FuncNow); c(abi.FuncRandom, 1024, 8) })
	for name, c := range map[string]struct {
		calls func(call)
		same  bool
	}{
		"the same":         {func(c call) { c(abi.FuncNow); c(abi.FuncRandom, 1024, 8) }, true},
		"other upper half": {func(c call) { c(abi.FuncNow); c(abi.FuncRandom, 0xabc<<32|1024, 8) }, true},
		"other order":      {func(c call) { c(abi.FuncRandom, 1024, 8); c(abi.FuncNow) }, false},
		"other pointer":    {func(c call) { c(abi.FuncNow); c(abi.FuncRandom, 1032, 8) }, false},
		"one call more":    {func(c call) { c(abi.FuncNow); c(abi.FuncRandom, 1024, 8); c(abi.FuncNow) }, false},
	} {
		if got := bytes.Equal(transcript(c.calls), base); got != c.same {
			t.Errorf("%s: same transcript %v, want %v", name, got, c.same)
		}
	}
}
