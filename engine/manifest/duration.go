package manifest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// ParseDuration reads a duration as Go writes it (300ms, 1.5h, 2h45m) with two
// units more: d is 24 hours and w is 7 days, whatever a clock change makes of
// a calendar day. A unit is required, a sign is refused, and so is what does
// not fit a time.Duration (about 292 years).
func ParseDuration(s string) (time.Duration, error) {
	var total time.Duration
	if s == "" {
		return 0, errors.New("it is empty")
	}
	if s[0] == '-' || s[0] == '+' {
		return 0, fmt.Errorf("%s has a sign", quote(s))
	}
	for rest := s; rest != ""; {
		n := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if n < 0 {
			return 0, fmt.Errorf("%s has no unit", quote(s))
		}
		number, tail := rest[:n], rest[n:]
		m := strings.IndexFunc(tail, func(r rune) bool { return r >= '0' && r <= '9' || r == '.' })
		if m < 0 {
			m = len(tail)
		}
		unit := tail[:m]
		rest = tail[m:]
		if number == "" {
			return 0, fmt.Errorf("%s is not a number and a unit", quote(s))
		}
		scale := time.Duration(1)
		switch unit {
		case "d":
			unit, scale = "h", 24
		case "w":
			unit, scale = "h", 7*24
		case "ns", "us", "µs", "μs", "ms", "s", "m", "h":
		default:
			return 0, fmt.Errorf("%s has the unknown unit %s", quote(s), quote(unit))
		}
		part, err := time.ParseDuration(number + unit)
		switch {
		case err != nil && strings.Count(number, ".") <= 1 && number != ".":
			return 0, fmt.Errorf("%s is too long", quote(s))
		case err != nil:
			return 0, fmt.Errorf("%s is not a number and a unit", quote(s))
		case part > maxDuration/scale, total > maxDuration-part*scale:
			return 0, fmt.Errorf("%s is too long", quote(s))
		}
		total += part * scale
	}
	return total, nil
}

const maxDuration = time.Duration(1<<63 - 1)

// FormatDuration writes d as a manifest would: in the largest units that
// divide it, as in 30d, 1h30m or 250ms. ParseDuration reads it back.
func FormatDuration(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}, {1, "ns"}} {
		if n := d / u.size; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10))
			b.WriteString(u.name)
			d -= n * u.size
		}
	}
	return b.String()
}
