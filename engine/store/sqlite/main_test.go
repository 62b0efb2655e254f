package sqlite

import (
	"flag"
	"os"
	"testing"

	"github.com/jobrunner/runner/engine/internal/leaktest"
)

// seed is what tests draw from that would draw from anything: what has passed
// passes again, and another seed finds other things.
var seed = flag.Uint64("seed", 1, "what random tests draw from")

func TestMain(m *testing.M) {
	flag.Parse()
	if child := os.Getenv(childEnv); child != "" {
		os.Exit(runChild(child))
	}
	os.Exit(leaktest.Main(m))
}
