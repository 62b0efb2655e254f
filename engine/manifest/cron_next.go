package manifest

import "time"

// Next is the first occurrence after t, in t's zone; zero for the zero Cron.
//
// The library steps through a calendar without clock changes, and what they
// mean is decided here: its own answers differ from zone to zone (a daily
// occurrence in a skipped half hour of Lord Howe Island is lost, in a skipped
// hour of Berlin it comes an hour late). The rule is that of Vixie cron:
//
//   - an expression that names minutes and hours comes once for each of its
//     wall-clock times: at the end of the gap when the clock skips it, the first
//     time when the clock repeats it;
//   - one whose minute or hour is a wildcard runs by elapsed time: nothing is
//     made up for what is skipped, and what is repeated comes again.
func (c Cron) Next(t time.Time) time.Time {
	if c.spec == nil {
		return time.Time{}
	}
	if c.elapsed {
		return c.byElapsedTime(t)
	}
	for w := wall(t); ; {
		if w = c.spec.Next(w); w.IsZero() {
			return time.Time{}
		}
		if next := instant(w, t.Location()); next.After(t) {
			return next
		}
	}
}

// Last is the latest occurrence after one instant that is not after the other,
// in the latter's zone; zero if there is none. It takes about as long for a year
// as for a day.
func (c Cron) Last(after, until time.Time) time.Time {
	var last time.Time
	if c.spec == nil || !after.Before(until) {
		return last
	}
	after = after.In(until.Location())
	// From low comes an occurrence that counts, from high none.
	low, high := until, until
	for back := time.Minute; ; back *= 2 {
		if low = until.Add(-back); !low.After(after) {
			low = after
		}
		if last = c.dueAfter(low, until); !last.IsZero() {
			break
		}
		if low.Equal(after) {
			return last
		}
		high = low
	}
	for high.Sub(last) > time.Minute {
		middle := last.Add(high.Sub(last) / 2)
		if next := c.dueAfter(middle, until); next.IsZero() {
			high = middle
		} else {
			last = next
		}
	}
	for next := c.dueAfter(last, until); !next.IsZero(); next = c.dueAfter(last, until) {
		last = next
	}
	return last
}

// dueAfter is the first occurrence after t, zero if that is after until.
func (c Cron) dueAfter(t, until time.Time) time.Time {
	if next := c.Next(t); !next.After(until) {
		return next
	}
	return time.Time{}
}

// byElapsedTime looks through one stretch without a clock change after the
// other.
func (c Cron) byElapsedTime(t time.Time) time.Time {
	w := wall(t)
	for {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		if w = c.spec.Next(w); w.IsZero() {
			return time.Time{}
		}
		next := w.Add(-time.Duration(offset) * time.Second).In(t.Location())
		if end.IsZero() || next.Before(end) {
			return next
		}
		t = end
		w = wall(end).Add(-time.Second)
	}
}

// wall is what a clock shows at t, as a time of UTC.
func wall(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant is when a clock of the zone first shows w, or, when it skips w, the
// moment of the skip.
func instant(w time.Time, zone *time.Location) time.Time {
	t := time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, zone)
	start, end := t.ZoneBounds()
	switch shown := wall(t); {
	case shown.After(w): // skipped; time.Date chose the offset before the gap
		return start
	case shown.Before(w): // skipped; time.Date chose the offset after it
		return end
	}
	if start.IsZero() {
		return t
	}
	_, before := start.Add(-1).Zone()
	if first := w.Add(-time.Duration(before) * time.Second).In(zone); first.Before(start) {
		return first
	}
	return t
}
