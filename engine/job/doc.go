// Package job is the vocabulary of the engine: run, attempt, state, outcome and
// the fencing token that every write of an attempt names. Its functions are
// pure: they say which transition is legal and leave it to a store to make it.
//
// # States
//
//	            enqueue
//	     ┌────────┴────────┐
//	     ▼                 ▼          promote, due
//	   ready ◀───────── delayed
//	     │ ▲ ▲             ▲
//	claim│ │ └─ wake ─┐    │ retry, rate limited
//	     ▼ │          │    │
//	   running ──▶ suspended        (sleep, wait)
//	     │ │
//	     │ └─ interrupted, shed, lease lapsed: ready
//	     ▼
//	   done │ failed │ dead │ cancelled
//
// ready means claimable now; delayed means it has a time to wait for, whether
// the enqueuer or a retry's backoff stated it. Keeping the two apart is what
// lets a claim read an index that holds due runs only.
//
// The first four states are live: a live run holds its idempotency key. The
// last four are terminal: they free the key and are kept for the job's
// retention. dead is a failure that waits for a person (the dead letter);
// failed is one that nobody needs to look at (dead_letter = false).
package job
