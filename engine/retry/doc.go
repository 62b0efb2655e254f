// Package retry says when and whether a failed attempt is tried again, as a
// pure function of the policy, the attempt and how it failed. It reads no
// clock, starts nothing and knows no store; the caller adds the delay to the
// store's now and settles.
//
//	kind            counted  tried again          after
//	retry           yes      while attempts last  backoff, clamped, jittered
//	retry after     yes      while attempts last  the stated wait, clamped by the policy's longest
//	rate limited    no       always               at least the stated wait, and a spread on top
//	terminal        yes      never
//
// The attempt ceiling outranks every kind but terminal, and does not apply to
// an attempt that does not count: a backlog of rate-limited runs must not be
// dead-lettered for waiting.
package retry
