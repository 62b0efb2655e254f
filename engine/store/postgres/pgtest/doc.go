// Package pgtest runs a throwaway Postgres for tests and benchmarks. It owns
// finding (or installing) the server's binaries, a server per process on a
// socket in a temporary folder, and a fresh database per caller; it knows
// nothing of the runner's schema.
//
// A test that needs Postgres never skips: without a server to be had it fails
// and says what to install.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		url := pgtest.Database(t) // an empty database, dropped after the test
//	}
//
// The server is the one whose initdb comes first in PATH, else the newest of those
// that packages install. Another version is tried with
//
//	PATH=/usr/lib/postgresql/17/bin:$PATH go test ./engine/store/postgres/...
//
// With RUNNER_TEST_DATABASE_URL set, databases are created on that server
// instead and no server is started. The role of that URL must be allowed to
// create databases.
//
// The server is stopped and its folder removed by a small shell that holds a
// pipe from the test process, so this happens however the process ends.
package pgtest
