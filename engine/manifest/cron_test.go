package manifest

import (
	"strings"
	"testing"
	"time"
)

func at(t *testing.T, zone, s string) time.Time {
	t.Helper()
	loc, err := loadZone(zone)
	if err != nil {
		t.Fatal(err)
	}
	tm, err := time.ParseInLocation("2006-01-02 15:04", s, loc)
	if err != nil {
		t.Fatal(err)
	}
	return tm
}

func TestCronNext(t *testing.T) {
	for _, c := range []struct{ name, expr, zone, from, want string }{
		{"every day at three", "0 3 * * *", "America/Bogota", "2026-01-01 03:00", "2026-01-02 03:00"},
		{"steps", "*/15 9-17 * * mon-fri", "UTC", "2026-01-02 17:45", "2026-01-05 09:00"},
		{"a list with names", "0 0 1 JAN,jul *", "UTC", "2026-01-01 00:00", "2026-07-01 00:00"},
		{"seven is Sunday", "0 0 * * 7", "UTC", "2026-01-01 00:00", "2026-01-04 00:00"},
		{"either day suffices", "0 0 13 * fri", "UTC", "2026-01-10 00:00", "2026-01-13 00:00"},
		{"a start with a step", "5/20 * * * *", "UTC", "2026-01-01 00:26", "2026-01-01 00:45"},
		{"29 February", "0 0 29 2 *", "UTC", "2096-03-01 00:00", "2104-02-29 00:00"},
		{"30 February on a Monday is any Monday of it", "0 0 30 2 mon", "UTC", "2026-01-01 00:00", "2026-02-02 00:00"},
		{"an hour that a clock change skips", "30 2 * * *", "Europe/Berlin", "2026-03-28 03:00", "2026-03-29 03:00"},
		{"an hour that a clock change repeats comes once", "30 2 * * *", "Europe/Berlin", "2026-10-25 02:30", "2026-10-26 02:30"},
		{"half an hour of clock change", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03 03:00", "2026-10-04 02:30"},
		{"midnight that does not exist", "0 0 * * *", "America/Santiago", "2026-09-05 12:00", "2026-09-06 01:00"},
		{"every hour knows no skipped hour", "15 * * * *", "Europe/Berlin", "2026-03-29 01:15", "2026-03-29 03:15"},
		{"two skipped times are one", "0,30 2 * * *", "Europe/Berlin", "2026-03-29 03:00", "2026-03-30 02:00"},
		{"a day that a zone never had", "0 12 30 12 *", "Pacific/Apia", "2011-12-01 00:00", "2011-12-31 00:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec, err := ParseCron(c.expr)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := spec.Next(at(t, c.zone, c.from)), at(t, c.zone, c.want); !got.Equal(want) {
				t.Errorf("after %s comes %s, want %s", c.from, got, want)
			}
		})
	}
}

func TestCronEveryHourComesInBothPassesOfARepeatedOne(t *testing.T) {
	spec, err := ParseCron("30 * * * *")
	if err != nil {
		t.Fatal(err)
	}
	now := at(t, "Europe/Berlin", "2026-10-25 01:30")
	for range 4 {
		next := spec.Next(now)
		if next.Sub(now) != time.Hour {
			t.Errorf("after %s comes %s", now, next)
		}
		now = next
	}
}

// Where no clock changes, the library alone decides.
func TestCronNextIsTheLibrarysWithoutClockChanges(t *testing.T) {
	for _, expr := range []string{"*/7 * * * *", "0 3 * * *", "1,31 */5 */3 feb-nov 1-5", "0 0 29 2 *", "59 23 31 12 0"} {
		spec, err := ParseCron(expr)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 2, 27, 22, 58, 31, 5, time.UTC)
		for range 200 {
			want := spec.spec.Next(now)
			if want.IsZero() {
				break
			}
			if got := spec.Next(now); !got.Equal(want) {
				t.Fatalf("%s: after %s comes %s, want %s", expr, now, got, want)
			}
			now = want
		}
	}
}

// In zones with odd habits, too, a daily expression comes once for each day.
func TestCronDailyComesOnceADayInEveryZone(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca", "Africa/El_Aaiun", "America/Nuuk", "Asia/Gaza", "Antarctica/Troll"} {
		for _, expr := range []string{"0 0 * * *", "15 2 * * *", "30 1 * * *", "59 23 * * *"} {
			spec, err := ParseCron(expr)
			if err != nil {
				t.Fatal(err)
			}
			now, end, n := at(t, zone, "2025-12-31 23:59"), at(t, zone, "2026-12-31 23:59"), 0
			for now.Before(end) {
				next := spec.Next(now)
				if gap := next.Sub(now); n > 0 && (gap < 21*time.Hour || gap > 27*time.Hour) {
					t.Fatalf("%s in %s: after %s comes %s", expr, zone, now, next)
				}
				now = next
				n++
			}
			if n != 365 && !(n == 366 && now.After(end)) {
				t.Errorf("%s in %s comes %d times in a year", expr, zone, n)
			}
		}
	}
}

// Whatever is accepted has a next time, also in the longest gap between two
// leap years.
func FuzzCronThatIsAcceptedComes(f *testing.F) {
	for _, s := range []string{"0 3 * * *", "0 0 29 2 *", "0 0 31 */2 *", "*/7 1-5/2 1,15 jan-mar sun", "0 0 30 2 *", "0 0 31 2 *", "0 0 30 2 7", "59 23 29-31 2 *", "0 0 */31 2 *"} {
		f.Add(s)
	}
	from := time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := ParseCron(s)
		if err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), "\n") && !strings.Contains(s, "\n") {
				t.Fatalf("%q: %q", s, err)
			}
			return
		}
		next := spec.Next(from)
		if next.IsZero() || !next.After(from) {
			t.Fatalf("%q never comes", s)
		}
	})
}

func TestTheZeroCronNeverComes(t *testing.T) {
	if got := (Cron{}).Next(time.Now()); !got.IsZero() {
		t.Errorf("got %s", got)
	}
}

func TestZones(t *testing.T) {
	for _, name := range []string{"UTC", "Etc/UTC", "America/Bogota", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Kathmandu"} {
		if _, err := loadZone(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
