package outbox_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envVictim) != "" {
		os.Exit(victim())
	}
	code := pgtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
