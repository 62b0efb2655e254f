package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// EnvURL names the variable with the URL of a server to use instead.
const EnvURL = "RUNNER_TEST_DATABASE_URL"

var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared is the server of this process, started by the first call.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.once.Do(func() {
		if url := os.Getenv(EnvURL); url != "" {
			shared.server = &Server{url: url}
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		shared.server, shared.err = Start(ctx, Options{})
	})
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.server
}

// Database is the URL of an empty database of the shared server; the end of
// the test drops it.
func Database(tb testing.TB) string {
	tb.Helper()
	url, drop, err := Shared(tb).CreateDatabase(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := drop(); err != nil {
			tb.Error(err)
		}
	})
	return url
}

// Main runs a package's tests and then stops the shared server, if one was
// started.
func Main(m *testing.M) int {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			return 1
		}
	}
	return code
}
