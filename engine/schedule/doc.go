// Package schedule fires schedules: it turns their due occurrences into runs,
// through the checks of the one enqueue path. It owns when a round takes place
// and what a round does. When occurrences are is package manifest's, and how a
// watermark moves together with its runs is the store's.
//
// # A round
//
//	lead ──► for each schedule that is led, due and not paused:
//	  │          plan (watermark, now) ──► prepare the runs ──► fire
//	  └─ one write: the leases, and back come watermarks and pauses
//
// Rounds come when the next occurrence is due, and when the leases are to be
// renewed, every third of a lease. In between nothing touches the store. A round
// that is asked for while one is under way is that one.
//
// # Exactly once
//
// A lease, one for each schedule, keeps processes from trying what another does;
// it is not what makes it safe. A fire names the watermark that it was computed
// from and moves it in the transaction that inserts the runs. So of two
// processes that both believe to lead, one fires and the other finds that it did
// not; a crash before the commit has fired nothing, and one after it everything.
// A fire whose answer is lost is not repeated blindly: the watermark is read
// again.
//
// Leases are for each schedule, not for all of them, so that two manifests that
// share a database each have their own schedules fired, and a schedule that both
// declare is fired by one of them, as that one declares it.
//
// # Time
//
// Now is the store's: what it answered with the leases, plus what this process
// has measured since. That is never ahead of the store's clock, and the fire
// itself is refused before its time.
package schedule
