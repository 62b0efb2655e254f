package job

import "time"

// Backoff is the shape of a retry schedule.
type Backoff string

const (
	BackoffFixed       Backoff = "fixed"       // delay
	BackoffLinear      Backoff = "linear"      // delay × n
	BackoffExponential Backoff = "exponential" // delay × 2^(n-1)
)

// RetryPolicy is how hard a job is tried. n, in the comments of Backoff, is the
// attempt that failed, from 1. Package retry computes with it.
type RetryPolicy struct {
	Attempts   int           // attempts in all, at least 1
	Backoff    Backoff       // shape
	Delay      time.Duration // base; 0 retries at once
	MaxDelay   time.Duration // clamps the shape before jitter
	Jitter     bool          // wait half the delay plus a random share of the other half
	DeadLetter bool          // a failure for good waits for a person (dead); false drops it (failed)
}

// DefaultRetry is the policy of a job that declares none.
var DefaultRetry = RetryPolicy{
	Attempts:   3,
	Backoff:    BackoffExponential,
	Delay:      time.Second,
	MaxDelay:   time.Hour,
	Jitter:     true,
	DeadLetter: true,
}
