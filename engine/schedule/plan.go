package schedule

import (
	"time"

	"github.com/jobrunner/runner/engine/manifest"
)

// Catch-up policies, as a manifest writes them.
const (
	runOnce = "run-once"
	runAll  = "run-all"
)

// countMissed bounds how many dropped occurrences are counted: those of a
// minutely schedule over a year are of no interest one by one.
const countMissed = 1000

// plan is what is to be done for a schedule.
type plan struct {
	first      time.Time // the earliest that is due
	occurrence time.Time // the one to fire; zero: none is due
	to         time.Time // where the watermark lands
	missed     int       // occurrences that are dropped with it
	next       time.Time // when to plan again, if nothing is due; zero: never
}

// planned decides what becomes of the occurrences after watermark that are due
// at now. One is fired. Of several, all but the last have been missed:
//
//   - skip fires the last and drops those before it;
//   - run-once fires the first, and lands at now, so that the next one to come
//     is the next that is fired;
//   - run-all fires the first, and the others in their turn.
func planned(s *manifest.Schedule, watermark, now time.Time) plan {
	first := s.Next(watermark)
	if first.IsZero() || first.After(now) {
		return plan{next: first}
	}
	second := s.Next(first)
	if second.IsZero() || second.After(now) || s.CatchUp == runAll {
		return plan{first: first, occurrence: first, to: first}
	}
	if s.CatchUp == runOnce {
		return plan{first: first, occurrence: first, to: now.Truncate(time.Millisecond), missed: count(s, first, now)}
	}
	last := s.Last(first, now)
	return plan{first: first, occurrence: last, to: last, missed: 1 + count(s, first, last.Add(-1))}
}

// count is how many occurrences come after one instant and not after another, as
// far as countMissed.
func count(s *manifest.Schedule, after, until time.Time) (n int) {
	for t := s.Next(after); !t.IsZero() && !t.After(until) && n < countMissed; t = s.Next(t) {
		n++
	}
	return n
}
