package manifest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// clockYear is each minute of a zone's year, as its clocks show it.
type clockYear struct {
	from, to time.Time
	minutes  []clockMinute
}

type clockMinute struct {
	at      time.Time
	shows   time.Time   // as a time of UTC
	again   bool        // shown, or skipped, before
	skipped []time.Time // by the step to this minute
}

func newClockYear(t testing.TB, zone string, year int) clockYear {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	y := clockYear{from: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).In(loc)}
	y.to = y.from.AddDate(1, 0, 3)
	highest := wall(y.from.Add(-time.Minute))
	for at := y.from; at.Before(y.to); at = at.Add(time.Minute) {
		m := clockMinute{at: at, shows: wall(at)}
		if m.shows.Second() != 0 {
			t.Fatalf("%s in %d is no whole number of minutes from Greenwich", zone, year)
		}
		m.again = !m.shows.After(highest)
		for s := highest.Add(time.Minute); s.Before(m.shows); s = s.Add(time.Minute) {
			m.skipped = append(m.skipped, s)
		}
		if !m.again {
			highest = m.shows
		}
		y.minutes = append(y.minutes, m)
	}
	return y
}

// byHand matches a clock's minute with an expression, in the plainest way.
func byHand(t testing.TB, expr string) func(time.Time) bool {
	t.Helper()
	var sets [5]uint64
	fields := strings.Fields(expr)
	for i, f := range cronFields {
		set, err := f.parse(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		sets[i] = set
	}
	has := func(i, n int) bool { return sets[i]&(1<<n) != 0 }
	return func(c time.Time) bool {
		if !has(0, c.Minute()) || !has(1, c.Hour()) || !has(3, int(c.Month())) {
			return false
		}
		dom, dow := has(2, c.Day()), has(4, int(c.Weekday())) || c.Weekday() == 0 && has(4, 7)
		if fields[2] == "*" || fields[4] == "*" { // */5 restricts
			return dom && dow
		}
		return dom || dow
	}
}

// occurrences are those of the year, by the rule as it is documented: by elapsed
// time with a wildcard, else once for each time of the clock.
func (y clockYear) occurrences(matches func(time.Time) bool, elapsed bool) (out []time.Time) {
	for _, m := range y.minutes {
		due := matches(m.shows) && (elapsed || !m.again)
		if !elapsed {
			due = due || slices.ContainsFunc(m.skipped, matches)
		}
		if due {
			out = append(out, m.at)
		}
	}
	return out
}

// Every occurrence of whole years, one after the other, is what looking at each
// minute of them finds; and so is the last one before any instant. The years
// have what is hardest: clock changes of half an hour and of two, at midnight,
// around Ramadan, a zone that moves by a quarter, a day that is left out.
func TestCronAgreesWithEveryMinuteOfAYear(t *testing.T) {
	exprs := []struct {
		expr    string
		elapsed bool
	}{
		{"30 2 * * *", false}, {"0 0 * * *", false}, {"15,45 1-3 * * *", false}, {"0 12 30,31 * *", false}, {"59 23 * * 5", false}, {"0 0,1,2,3 1 * mon", false},
		{"30 * * * *", true}, {"*/15 2 * * *", true}, {"* 1 * * *", true}, {"0 */2 * * *", true}, {"7 0-23 * * sun", true}, {"*/20 */3 */5 * 1-5", true},
	}
	for _, z := range []struct {
		zone string
		year int
	}{
		{"UTC", 2024}, {"Europe/Berlin", 2026}, {"Europe/Berlin", 1980}, {"America/New_York", 2024}, {"Australia/Lord_Howe", 2026}, {"Pacific/Apia", 2011},
		{"America/Santiago", 2026}, {"America/Sao_Paulo", 2018}, {"Africa/Casablanca", 2025}, {"Asia/Gaza", 2025}, {"Antarctica/Troll", 2025},
		{"Pacific/Kwajalein", 1993}, {"Asia/Kathmandu", 1985}, {"Asia/Pyongyang", 2018}, {"Europe/Moscow", 2014}, {"Europe/London", 1971}, {"America/Caracas", 2016},
	} {
		t.Run(fmt.Sprint(z.zone, " ", z.year), func(t *testing.T) {
			t.Parallel()
			year := newClockYear(t, z.zone, z.year)
			for _, e := range exprs {
				spec, err := ParseCron(e.expr)
				if err != nil {
					t.Fatal(err)
				}
				want := year.occurrences(byHand(t, e.expr), e.elapsed)
				if len(want) == 0 {
					t.Fatalf("%s: nothing to compare", e.expr)
				}
				now := year.from.Add(-time.Minute)
				for _, w := range want {
					next := spec.Next(now)
					if !next.Equal(w) {
						t.Fatalf("%s: after %s comes %s, want %s", e.expr, now, next, w)
					}
					now = next
				}
				if next := spec.Next(now); next.Before(year.to) {
					t.Fatalf("%s: after %s comes %s, want none before %s", e.expr, now, next, year.to)
				}
				year.lasts(t, spec, want)
			}
		})
	}
}

// lasts compares Last, and Next from an instant that is no occurrence.
func (y clockYear) lasts(t *testing.T, spec Cron, want []time.Time) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	at := func() time.Time { return y.from.Add(time.Duration(random.Int64N(int64(y.to.Sub(y.from))))) }
	for range 60 {
		until, after := at(), at()
		if random.IntN(3) == 0 {
			until = want[random.IntN(len(want))] // an occurrence itself counts
		}
		if random.IntN(3) == 0 {
			after = want[random.IntN(len(want))]
		}
		n, found := slices.BinarySearchFunc(want, until, time.Time.Compare)
		if !found {
			n--
		}
		var last time.Time
		if n >= 0 && want[n].After(after) {
			last = want[n]
		}
		if got := spec.Last(after, until); !got.Equal(last) {
			t.Fatalf("%s: the last of %s to %s is %s, want %s", spec, after, until, got, last)
		}
		if n+1 < len(want) {
			if got := spec.Next(until); !got.Equal(want[n+1]) {
				t.Fatalf("%s: after %s comes %s, want %s", spec, until, got, want[n+1])
			}
		}
	}
}

// A zone that was not a whole number of minutes from Greenwich, before 1972.
func TestCronBeforeZonesHadWholeMinutes(t *testing.T) {
	spec, err := ParseCron("0 3 * * *")
	if err != nil {
		t.Fatal(err)
	}
	loc, err := time.LoadLocation("Africa/Monrovia")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(1972, 1, 1, 0, 0, 0, 0, loc)
	for range 14 {
		next := spec.Next(now)
		if h, m, s := next.Clock(); h != 3 || m != 0 || s != 0 || next.Sub(now) > 25*time.Hour {
			t.Fatalf("after %s comes %s", now, next)
		}
		now = next
	}
}

func TestCronLastTakesNoLongerForDecades(t *testing.T) {
	for expr, want := range map[string]string{"* * * * *": "2026-03-01T12:00:00Z", "0 0 29 2 *": "2024-02-29T00:00:00Z", "0 3 * * *": "2026-03-01T03:00:00Z"} {
		spec, err := ParseCron(expr)
		if err != nil {
			t.Fatal(err)
		}
		until := time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)
		if got := spec.Last(until.AddDate(-40, 0, 0), until).Format(time.RFC3339); got != want {
			t.Errorf("%s: %s, want %s", expr, got, want)
		}
		if got := spec.Last(until, until); !got.IsZero() {
			t.Errorf("%s: after itself comes %s", expr, got)
		}
		if got := (Cron{}).Last(until.AddDate(-1, 0, 0), until); !got.IsZero() {
			t.Errorf("the zero expression has %s", got)
		}
	}
}
