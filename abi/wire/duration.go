package wire

import (
	"math"
	"time"

	"github.com/jobrunner/runner/abi"
)

// Duration is the milliseconds that a guest passes to sleep or wait_event.
// Negative ones count as zero, which is over at once; more than abi.MaxSleep is
// a Refusal with CodeLimit.
func Duration(ms int64) (time.Duration, error) {
	if ms <= 0 {
		return 0, nil
	}
	if ms > abi.MaxSleep.Milliseconds() {
		return 0, limit("check the unit: the argument is in milliseconds", "%d ms is longer than ten years", ms)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// Until is the instant, in Unix milliseconds, that a guest whose clock is at now
// passes to sleep_until. More than abi.MaxSleep ahead is refused as by Duration.
func Until(ms int64, now time.Time) (time.Time, error) {
	if at := now.UnixMilli(); ms > at {
		if _, err := Duration(ms - at); err != nil {
			return time.Time{}, err
		}
	}
	return time.UnixMilli(max(ms, 0)).UTC(), nil
}

// Millis is d in whole milliseconds, rounded up, so that no wait ends early.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// wait is a number of milliseconds from JSON as a duration, and whether it can
// be used as one: finite and not negative. It is cut at abi.MaxSleep.
func wait(ms float64) (time.Duration, bool) {
	if math.IsNaN(ms) || math.IsInf(ms, 0) || ms < 0 {
		return 0, false
	}
	if ms > float64(abi.MaxSleep.Milliseconds()) {
		return abi.MaxSleep, true
	}
	return time.Duration(math.Ceil(ms)) * time.Millisecond, true
}
