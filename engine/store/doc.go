// Package store states what a database must promise the engine, as role
// interfaces with their params, results and sentinels. It holds no policy and
// no SQL: whether and when is decided above it, how is decided by
// store/sqlite and its siblings, and package storetest pins the meaning of
// every method for all of them.
//
// # Promises common to every method
//
// A method that returns without error is durable: a crash or a power cut
// afterwards loses nothing of it. A method with an error has done nothing,
// unless the error is ErrUnknown: then it may have happened, and the caller
// asks again. Claim alone may be answered a moment before it is durable, where a
// power cut that takes the claim takes the worker too, since the database is on
// its machine.
//
// Every decision about time is made on the store's clock, at the instant of
// the statement. Instants have millisecond resolution.
//
// A fenced write names a job.Ref and lands only while the run is running under
// that worker and that claim ordinal. A miss is an answer (Landed false), not
// an error: whoever holds the run now has the verdict.
//
// All methods are safe for concurrent use. Batches are atomic unless the
// method says otherwise; an empty batch does nothing. What a method was passed is
// not read any more once it has returned, so that a caller may fill a batch anew.
package store
