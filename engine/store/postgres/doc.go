// Package postgres keeps a fleet's runs in one schema of a Postgres database. It
// owns the statements, the schema and its migrations, and the translation of
// the server's errors; it holds no policy. What each method means is stated in
// package store and pinned by storetest.
//
// # A run's row moves
//
//	          enqueue                claim               settle
//	───────────────────▶ waiting ──────────▶ running ──────────────▶ finished
//	                        ▲                   │                 (partitioned by week)
//	                        └───────────────────┘
//	                         retry, sleep, reclaim
//
// A run is in the table of its phase, and each move is a DELETE and an INSERT in
// one statement. So the index that a claim reads holds nothing but due runs, a
// row is never rewritten in place, and finished runs, however many, are out of
// the way. Two runs cannot be one: an id that was not minted for the write is looked for in
// all three tables after it went into the first, and keys are held in a table of their own. Inputs of
// more than a kilobyte stay where they were first written.
//
// # One round trip, many runs
//
// Methods that take batches send arrays to one statement; several statements go
// out together and commit together. Who calls gathers batches: this package has
// no timers. The only goroutines are those of wakes.
//
// # Plans
//
// Plans are made once per connection and kept, and must suit tables that grow
// from nothing to millions. So the sessions of the pool have the planner's
// alternatives switched off, and every join with a table of runs is written as a
// lookup (see of_u in enqueue.sql).
//
// # Locks
//
// Rows are locked in the order of their runs' ids, keys in their own order, and
// whatever looks for work passes over what is locked. A transaction that the
// server rolls back for a deadlock nevertheless is run again.
package postgres
