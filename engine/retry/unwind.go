package retry

import "math"

// IsUnwindAttempt reports whether attempt is past the last of the body's max:
// what it runs are compensators.
func IsUnwindAttempt(attempt, max int) bool { return attempt > max }

// IsFinalUnwindAttempt reports whether attempt is the last that an unwind gets:
// as many again as the body had.
func IsFinalUnwindAttempt(attempt, max int) bool {
	if max > math.MaxInt/2 {
		return attempt == math.MaxInt
	}
	return attempt >= 2*max
}
