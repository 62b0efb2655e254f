package metrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/engine/metrics"
)

func TestSchedulesAreCountedByName(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := metrics.NewSchedules(r)
	if err != nil {
		t.Fatal(err)
	}
	m.Fired("a", time.Minute, 3)
	m.Fired("a", -time.Second, 0) // a clock was set back
	m.Skipped("a", 2)
	m.Failed("b")
	m.Overdue("a", 90*time.Second)
	m.Overdue("b", -time.Second)
	m.Led(2)
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"runner_schedule_fires_total", []string{"fired", "a"}, 2},
		{"runner_schedule_fires_total", []string{"skipped", "a"}, 1},
		{"runner_schedule_missed_total", []string{"a"}, 5},
		{"runner_schedule_failed_total", []string{"b"}, 1},
		{"runner_schedule_overdue_seconds", []string{"a"}, 90},
		{"runner_schedule_overdue_seconds", []string{"b"}, 0},
		{"runner_schedule_led", nil, 2},
	} {
		if got := value(t, r, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	m.NotLed("a")
	if got := value(t, r, "runner_schedule_overdue_seconds", "a"); got != -1 {
		t.Errorf("a schedule that is not led any more is overdue by %v", got)
	}
	if _, err := metrics.NewSchedules(r); err == nil {
		t.Error("a second registration was accepted")
	}
	none, err := metrics.NewSchedules(nil)
	if none != nil || err != nil {
		t.Errorf("without a registerer: %v, %v", none, err)
	}
	none.Fired("a", 0, 0)
	none.Skipped("a", 0)
	none.Failed("a")
	none.Overdue("a", 0)
	none.NotLed("a")
	none.Led(0)
}
