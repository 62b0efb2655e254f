// Package guesttest runs handlers written with package guest in the test binary
// itself, under virtual time and against abitest.Memory: three days of sleep
// and five retries take microseconds, and every attempt replays what the ones
// before it recorded, as in production.
//
//	func TestOnboard(t *testing.T) {
//		r := guesttest.Run(t, "onboard-org", Input{OrgID: "org_1"}, guesttest.Options{})
//		if r.Err != nil || r.Elapsed != 72*time.Hour {
//			t.Fatalf("%v after %v", r.Err, r.Elapsed)
//		}
//	}
//
// After a run that is done, Run replays it once more from its records and fails
// the test if the handler then takes another path or returns something else.
//
// Guest gives the same handlers as an abi.Guest, for a test of an engine.
//
// What differs from a module: a handler shares the test's memory and globals
// from attempt to attempt, is stopped through runtime.Goexit (so that no
// recover can get in the way, but deferred functions do run), and no limit on
// memory or time applies.
package guesttest
