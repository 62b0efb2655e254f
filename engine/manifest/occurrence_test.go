package manifest

import (
	"testing"
	"time"
)

func TestInputsTellOfTheOccurrence(t *testing.T) {
	m, report := Parse("jobs.toml", []byte(minimal+`
[schedules.s]
cron = "0 3 * * *"
tz = "America/Bogota"
enqueue = [
  { job = "a", input = { at = "{occurrence}", day = "day {occurrence.date}, {occurrence.date}", ms = "{occurrence.unix_ms}", n = "{name}{}" } },
  { job = "a", input = { n = 1 } },
]
`))
	if report != nil {
		t.Fatal(report)
	}
	s := m.Schedules["s"]
	at := s.Next(time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC))
	const want = `{"at":"2026-01-31T03:00:00-05:00","day":"day 2026-01-31, 2026-01-31","ms":"1769846400000","n":"{name}{}"}`
	if got := string(s.Enqueue[0].InputAt(at)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(s.Enqueue[1].InputAt(at)); got != `{"n":1}` {
		t.Errorf("got %s", got)
	}
	if got := s.Definition(); got != "0 3 * * * America/Bogota" {
		t.Errorf("definition %q", got)
	}
}

// The definition is the same for what means the same, and another for another.
func TestDefinitionsDoNotDependOnSpaces(t *testing.T) {
	spec, err := ParseCron(" 0  3 *\t* *")
	if err != nil {
		t.Fatal(err)
	}
	if got := spec.String(); got != "0 3 * * *" {
		t.Errorf("%q", got)
	}
}

func TestJitterIsFixedForAnOccurrenceAndSpreadOverMany(t *testing.T) {
	s := &Schedule{Name: "s", Jitter: 10 * time.Second}
	other := &Schedule{Name: "t", Jitter: 10 * time.Second}
	at := time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)
	var sum time.Duration
	same := 0
	const n = 2000
	for range n {
		d := s.Due(at).Sub(at)
		if d < 0 || d > s.Jitter || d%time.Millisecond != 0 {
			t.Fatalf("%s is due %v later", at, d)
		}
		if s.Due(at.In(time.FixedZone("x", 3600))).Sub(at) != d {
			t.Fatal("it depends on more than the instant")
		}
		if other.Due(at).Sub(at) == d {
			same++
		}
		sum += d
		at = at.AddDate(0, 0, 1)
	}
	if mean := sum / n; mean < 4700*time.Millisecond || mean > 5300*time.Millisecond || same > n/100 {
		t.Errorf("the mean of %d is %v; %d are the same for another schedule", n, mean, same)
	}
	if got := (&Schedule{Name: "s"}).Due(at); !got.Equal(at) {
		t.Errorf("without jitter it is due at %s", got)
	}
}
