package outbox_test

import (
	"os"
	"testing"

	"github.com/jobrunner/runner/engine/internal/leaktest"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envVictim) != "" {
		os.Exit(victim())
	}
	outbox.BePatient()
	os.Exit(leaktest.Main(onServer{m}))
}

// onServer runs tests that share a server.
type onServer struct{ *testing.M }

func (m onServer) Run() int { return pgtest.Main(m.M) }
