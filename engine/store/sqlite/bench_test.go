package sqlite

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/storetest"
)

func openBench(tb testing.TB) store.Store {
	return open(tb, Config{Path: filepath.Join(tb.TempDir(), "runs.db")})
}

func BenchmarkFile(b *testing.B) { storetest.Bench(b, openBench) }

func BenchmarkMemory(b *testing.B) {
	storetest.Bench(b, func(tb testing.TB) store.Store { return open(tb, Config{Path: Memory}) })
}

// The claim path among finished runs: the figures should not depend on how many.
func BenchmarkClaimBeside(b *testing.B) {
	for _, finished := range []int{0, 1_000_000} {
		b.Run(strconv.Itoa(finished), func(b *testing.B) { storetest.BenchClaimBeside(b, openBench, finished) })
	}
}

// A claim while so many wait behind one busy key: the figures should not depend
// on how many.
func BenchmarkClaimBehind(b *testing.B) {
	for _, waiting := range []int{0, 100_000} {
		b.Run(strconv.Itoa(waiting), func(b *testing.B) { storetest.BenchClaimBehind(b, openBench(b), waiting, func() {}) })
	}
}
