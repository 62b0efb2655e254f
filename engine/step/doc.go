// Package step is the durable memory of one attempt: what of abi.Calls survives
// a crash. It replays what earlier attempts recorded, commits what this one
// does, and prepares what a suspension or a retry writes with its settle. It
// decides nothing about runs: whether a failure is final is asked of the
// worker, and what an end means for the run is the worker's to settle.
//
// # Replay
//
// A handler is run again from its start by every attempt. A step that has a
// record is answered from it, one that has none runs and is recorded before
// its call returns. The records of earlier attempts are read once, before the
// guest starts, and only if there are any.
//
//	record      asked for again by a later attempt
//	completed   its output, at once
//	failed      its failure, at once: it was final when it was recorded
//	sleeping    nothing once the wake time has passed, else suspends again
//	retrying    runs
//	started     a once step whose outcome nobody knows: the run stops for good
//
// # Divergence
//
// A replay is sound only while the handler walks the path it walked before. It
// is checked by set, not by order: what an earlier attempt recorded must be
// asked for before anything new is, and before the handler returns. So
// X_REPLAY_DIVERGED ends the run for good when
//
//   - a step, sleep or enqueue without a record is asked for while records that
//     replay something (completed, failed, sleeping, started) have not been;
//   - the handler returns its output and some of them were never asked for;
//   - a name is asked for as another kind of thing than was recorded.
//
// Legitimate, and not reported:
//
//   - recorded steps asked for in another order. Each is keyed by its name and
//     replays the same; a handler that fans out does that.
//   - a failure, a trap or a deadline before the records were all visited. It
//     says more than the divergence would, and a later attempt may get further.
//   - skipping a step whose record is retrying: it replays nothing, and a
//     handler may give up an optional step after its first failure.
//   - a sleep of no length, which is answered at once and leaves no record.
//   - new steps after all records: how a long-lived handler grows under
//     on_deploy = "latest", and what a retry from a step leaves.
//
// It is terminal because a retry would take the same wrong path; the dead
// letter waits for the right module, or for a retry from the first step that
// differs.
//
// # After the end
//
// An attempt that was cancelled writes nothing more, whatever its guest still
// asks: its claim may be someone else's by now. The one exception is a step
// that ends while the worker drains: its effect has happened and its claim is
// still ours, so it is recorded.
package step
