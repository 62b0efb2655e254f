// Package leaktest ends a package's tests with a look at the goroutines that they
// left behind. What the tests are about is theirs.
package leaktest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines that are ending may take on a busy machine.
// Only one that has been left behind takes it.
const patience = time.Minute

// Main runs the tests of m, a *testing.M or what wraps one, and answers its exit
// code: a goroutine that does not end is a failure.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	for began := time.Now(); ; {
		err := goleak.Find() // looks for half a second
		if err == nil {
			return 0
		}
		if time.Since(began) > patience {
			_, _ = fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}
