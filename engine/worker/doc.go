// Package worker runs attempts: it claims due runs into free slots, keeps the
// lease of what it holds, runs each run's guest against its durable memory, and
// settles what came of it. What a step remembers is package step's, what a
// failure means for the schedule is package retry's, and what a commit
// promises is the store's.
//
// # Sessions and leases
//
// A worker is registered under an id of its own, its session; a run's lease is
// its session's. The session is renewed three times per lease. It is lost when
// a renewal says so or when a whole lease passes, on this process's clock,
// since the start of the last renewal that landed; then every attempt of the
// session is aborted and the worker registers again under a new id. Nothing of
// the old session is written any more: whoever has its runs now has the
// verdict, and the fence keeps a straggler from landing.
//
// A claim whose answer was lost may have moved runs to the session without
// telling it. The session is then retired: new claims go to a new one, the
// attempts of the old go on, and when the last has ended it deregisters, which
// hands the unknown runs back. A session whose settle failed for good is retired
// too, but lapses instead of deregistering: the run comes back counted, since a
// run that no store accepts must not circle for ever.
//
// # One attempt
//
//	claim ─▶ resolve ─▶ check input, tenant ─▶ hydrate ─▶ guest ─▶ verdict ─▶ settle
//	           │              │                  │
//	           ▼              ▼                  ▼
//	       shed, +30 s    failed for good    shed, +1 s
//
// Everything before the guest that is this process's trouble sheds the run,
// uncounted; what is the run's own trouble is a failure of the run. The verdict
// is a pure function of the outcome and of why the attempt's context ended.
//
// # Goroutines
//
// One claims, one keeps the registration, one beats per session, one each
// reclaims, purges and counts, and each attempt has one. Settles are written by the queue's writer, which
// calls back here; a callback takes the lock, never a store.
package worker
