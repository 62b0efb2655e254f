package retry

import (
	"math"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// StopReason is why a run is not tried again.
type StopReason string

const (
	NotStopped StopReason = ""
	Terminal   StopReason = "terminal"           // the failure said so
	NoneLeft   StopReason = "attempts-exhausted" // it was the last attempt
)

// minDeferral is the shortest wait of a rate-limited attempt that stated none.
const minDeferral = time.Second

// Params is one failed attempt. Its zero Kind is abi.FailRetry, which also
// stands for every kind this build does not know: an unclassified failure
// counts attempts like any other.
type Params struct {
	Policy      job.RetryPolicy
	Attempt     int // the attempt that failed, counted, from 1
	MaxAttempts int // of the run's row, which an operator may have raised; 0 takes Policy.Attempts
	Kind        abi.FailureKind
	// Wait is what the failure stated, for FailRetryAfter and FailRateLimited.
	// A negative one counts as not stated, as does 0 of FailRateLimited.
	Wait time.Duration
	// Rand answers uniformly from [0, 1), as math/rand/v2.Float64 does; nil is
	// a constant 0, the shortest wait.
	Rand func() float64
}

// Decision is how to settle the attempt.
type Decision struct {
	Outcome job.Outcome
	To      job.State     // Ready, Delayed, Dead or Failed
	Delay   time.Duration // until the run is due again; 0 unless To is Delayed
	Counted bool          // the attempt stays counted against the run
	Stop    StopReason
}

// Next decides. It never panics and answers a Delay of at least 0 whatever the
// numbers are.
func Next(p Params) Decision {
	switch {
	case p.Kind == abi.FailTerminal:
		return stop(p.Policy, Terminal)
	case p.Kind == abi.FailRateLimited:
		return again(job.Deferred, deferral(p))
	case Final(p.Attempt, p.maxAttempts()):
		return stop(p.Policy, NoneLeft)
	case p.Kind == abi.FailRetryAfter && p.Wait >= 0:
		// Clamped: a server that states a year must not park a run for one. Not
		// jittered: the server knows when.
		return again(job.Retried, min(p.Wait, max(p.Policy.MaxDelay, 0)))
	}
	d := Backoff(p.Policy, p.Attempt)
	if p.Policy.Jitter {
		d = jitter(d, p.rand())
	}
	return again(job.Retried, d)
}

// Final reports whether attempt is the last that max allows. It is the one
// comparison that both the retry decision and what a handler is told use.
func Final(attempt, max int) bool { return attempt >= max }

func (p Params) maxAttempts() int {
	if p.MaxAttempts > 0 {
		return p.MaxAttempts
	}
	return p.Policy.Attempts
}

// rand is Rand's answer, kept inside [0, 1).
func (p Params) rand() float64 {
	if p.Rand == nil {
		return 0
	}
	r := p.Rand()
	if !(r >= 0) { // negative or NaN
		return 0
	}
	return min(r, 1-0x1p-53)
}

func stop(policy job.RetryPolicy, why StopReason) Decision {
	if policy.DeadLetter {
		return Decision{Outcome: job.DeadLettered, To: job.Dead, Counted: true, Stop: why}
	}
	return Decision{Outcome: job.Dropped, To: job.Failed, Counted: true, Stop: why}
}

func again(o job.Outcome, d time.Duration) Decision {
	to := job.Ready
	if d > 0 {
		to = job.Delayed
	}
	return Decision{Outcome: o, To: to, Delay: d, Counted: o.Counted()}
}

// deferral is the wait of a rate-limited attempt. The stated wait is a floor
// that MaxDelay never lowers: to come back sooner is to be limited again. The
// spread keeps a herd that was limited together from coming back together.
//
// Nothing counts these attempts, so a wait of nothing would spin between
// claim and limit for ever: without a usable wait the policy's own backoff
// stands in, a second at least.
func deferral(p Params) time.Duration {
	floor := p.Wait
	if floor <= 0 {
		floor = max(Backoff(p.Policy, p.Attempt), minDeferral)
	}
	spread := min(floor/2, max(p.Policy.MaxDelay, 0))
	return add(floor, time.Duration(p.rand()*float64(spread)))
}

// Backoff is the policy's wait after attempt n failed, clamped by MaxDelay and
// without jitter.
func Backoff(p job.RetryPolicy, n int) time.Duration {
	most := max(p.MaxDelay, 0)
	d := max(p.Delay, 0)
	if d >= most {
		return most
	}
	n = max(n, 1)
	switch p.Backoff {
	case job.BackoffLinear:
		// d < most, so d == 0 is the only zero divisor and stays zero.
		if d == 0 || time.Duration(n) <= most/d {
			return d * time.Duration(n)
		}
		return most
	case job.BackoffExponential:
		for ; n > 1 && d > 0; n-- {
			if d > most/2 {
				return most
			}
			d *= 2
		}
	}
	return min(d, most)
}

// jitter keeps half of d and draws the other half: "equal" jitter. Full jitter
// would give a run that failed twice next to no wait.
func jitter(d time.Duration, r float64) time.Duration {
	fixed := d / 2
	return fixed + time.Duration(r*float64(d-fixed))
}

// add is a + b, at most the longest duration.
func add(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
