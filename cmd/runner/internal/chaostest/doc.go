// Package chaostest holds one test: a fleet of real worker processes on a real
// Postgres server, to which everything happens that happens to fleets, and the
// account of it afterwards. It owns the trouble and the account; what is troubled
// is the binary that users run.
//
// Three `runner serve` processes work runs of three steps. Each step asks a
// server of the test for a token, which notes the effect, and returns the token,
// which makes it part of the run's record. Meanwhile processes are killed,
// stopped for longer than their lease and continued, told to drain; their
// connections are cut, stalled and delayed by proxies of the test's, and what they
// write arrives when somebody else has the run; the Postgres
// server crashes or is restarted, ends sessions, refuses privileges, logins and
// writes for a while; somebody locks the tables. All processes have the least
// privileges that do. At last, when nothing else happens, whichever process claims
// one more run is killed in its first step: a machine may be too busy for any other to
// be taken over. What must hold in the end, and during it, is in check_test.go and
// effects_test.go.
//
// The short form runs with the other tests. Flags make it longer:
//
//	make chaos                                 # a minute, with clocks skewed by ten minutes
//	make chaos CHAOS_FOR=1h CHAOS_RUNS=100000 CHAOS_EVERY=2s
//	make chaos CHAOS_SEED=123                  # the schedule that a failure printed
//	make chaos CHAOS_FLAGS='-chaos.plant=step-fence -chaos.only=overtake,haunt'
//
// The last builds the workers without a fence, which the round has to notice.
package chaostest
