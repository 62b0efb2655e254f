// Package queue is the one way into the queue and the batched way out of an
// attempt.
//
// In: Enqueue and EnqueueMany look the job up in the current manifest, check
// the input, render tenant and key, and insert. Every caller (command line,
// HTTP API, Go client, schedule, a guest through Prepare) takes this path, so
// that validation, identity and attribution cannot differ between them.
//
// A single run may begin in this process in the write that enqueues it: see Use.
//
// Out: Settle and SaveStep are single fenced writes to their callers, and
// shared commits to the store: while one batch commits, the next gathers. There
// is no waiting for a batch to fill and no timer that flushes one.
//
// Uniqueness is decided by the store alone; this package never reads before it
// inserts. When and whether to retry a failed attempt is package retry; which
// run goes where is package worker.
package queue
