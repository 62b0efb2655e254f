// Package call is the boundary between a guest and its host: the functions a
// guest may import, each in its own file, and the calls the host makes into a
// guest, from bringing it up to the end of an attempt.
//
// It owns the movement of values between stack, linear memory and abi.Calls,
// the rules of the contract that need no database (where a step is open, which
// clock and which random numbers a guest sees), and the translation of
// everything that can end a call into an abi.Outcome. Instances and their
// memory are host/instance; what lies outside the sandbox is host/capability,
// met here as the interface Capabilities; what steps, timers and events mean is
// the abi.Calls of whoever runs the attempt.
//
// # One attempt
//
// All state of an attempt is in a State, which travels as the context of the
// call into the guest. Host functions keep nothing else, so that resetting an
// instance resets everything. A host function gets no Go error back to the
// guest: it answers a code, or it notes the outcome in the State, which State.End
// reads, and unwinds the guest by a panic.
//
// # Time and randomness
//
// Outside steps a guest must do the same in every attempt of a run. So its
// clock starts at the run's first claim, moves by a microsecond when read,
// jumps where the guest sleeps, and to each instant that abi.Calls answers; its
// random numbers come from the run's seed. Between step_begin and step_end both
// are real. WASI's clock_time_get and random_get read the same sources.
//
// # Waiting
//
// A guest runs on a CPU slot. A call that waits for something (a commit, a
// request) gives the slot up meanwhile; one that usually answers from memory
// only lends it. Neither counts as CPU time. At its tick a guest makes room for
// whoever waits for a slot.
package call
