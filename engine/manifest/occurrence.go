package manifest

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"regexp"
	"strconv"
	"time"
)

// Next is the schedule's first occurrence after t, in its zone.
func (s *Schedule) Next(t time.Time) time.Time { return s.Spec.Next(t.In(s.Zone)) }

// Last is its latest occurrence after one instant that is not after the other,
// in its zone; zero if there is none.
func (s *Schedule) Last(after, until time.Time) time.Time {
	return s.Spec.Last(after, until.In(s.Zone))
}

// Definition is what its occurrences are computed from. Two schedules of one
// definition have the same.
func (s *Schedule) Definition() string { return s.Spec.String() + " " + s.Zone.String() }

// Due is when the runs of an occurrence become due: the occurrence itself or,
// with jitter, an instant within that time after it, the same for all runs of
// the occurrence and whoever computes it.
func (s *Schedule) Due(occurrence time.Time) time.Time {
	if s.Jitter <= 0 {
		return occurrence
	}
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64([]byte(s.Name+"\x00"), uint64(occurrence.UnixMilli())))
	x := h.Sum64() // whose low bits are not mixed well enough for a remainder
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return occurrence.Add(time.Duration(x%uint64(s.Jitter.Milliseconds()+1)) * time.Millisecond)
}

// shortestGap is the shortest time between two occurrences, as far as a few of
// them tell, without regard to clock changes; 0 if the expression is bad.
func (c Cron) shortestGap() (gap time.Duration) {
	t := c.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))
	for range 32 {
		next := c.Next(t)
		if next.IsZero() {
			break
		}
		if d := next.Sub(t); gap == 0 || d < gap {
			gap = d
		}
		t = next
	}
	return gap
}

// What a text of a scheduled input may say of the occurrence. Nothing else in
// braces means anything there.
const (
	occurrenceWhole = "{occurrence}"
	occurrenceDate  = "{occurrence.date}"
	occurrenceMS    = "{occurrence.unix_ms}"
)

var anyOccurrence = regexp.MustCompile(`\{occurrence[^{}"\\]*\}`)

// badOccurrence is the first text in braces that looks like one of those and is
// none, or "".
func badOccurrence(input []byte) string {
	for _, m := range anyOccurrence.FindAll(input, -1) {
		switch string(m) {
		case occurrenceWhole, occurrenceDate, occurrenceMS:
		default:
			return string(m)
		}
	}
	return ""
}

// InputAt is the input of an occurrence, which is in the schedule's zone:
// {occurrence} is its instant there, as in 2026-01-31T03:00:00-05:00,
// {occurrence.date} the day, and {occurrence.unix_ms} the milliseconds of Unix
// time. They tell of the occurrence, however late it is made up for.
func (r *ScheduledRun) InputAt(occurrence time.Time) []byte {
	input := r.Input
	if !bytes.Contains(input, []byte("{occurrence")) {
		return input
	}
	for name, value := range map[string]string{
		occurrenceWhole: occurrence.Format("2006-01-02T15:04:05-07:00"),
		occurrenceDate:  occurrence.Format("2006-01-02"),
		occurrenceMS:    strconv.FormatInt(occurrence.UnixMilli(), 10),
	} {
		input = bytes.ReplaceAll(input, []byte(name), []byte(value))
	}
	return input
}
