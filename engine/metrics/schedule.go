package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Schedules records what a process that leads schedules does. A nil *Schedules
// records nothing. All methods are safe for concurrent use. One process leads a
// schedule at a time: sum over a fleet.
type Schedules struct {
	fires   *prometheus.CounterVec
	missed  *prometheus.CounterVec
	failed  *prometheus.CounterVec
	overdue *prometheus.GaugeVec
	lag     prometheus.Histogram
	led     prometheus.Gauge
}

// NewSchedules registers the metrics of a scheduler with r. A nil r answers a
// nil *Schedules. The error is that of a name r already knows.
func NewSchedules(r prometheus.Registerer) (*Schedules, error) {
	if r == nil {
		return nil, nil
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "runner", Subsystem: "schedule", Name: name, Help: help}, append([]string{"schedule"}, labels...))
	}
	m := &Schedules{
		fires:  counter("fires_total", "Occurrences dealt with, by result: fired, or skipped because a run of an earlier one was live.", "result"),
		missed: counter("missed_total", "Occurrences that came while nothing fired them and that the catch-up policy dropped, counted to 1,000 at a time."),
		failed: counter("failed_total", "Tries to fire that failed; the occurrence stays due."),
		overdue: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "runner", Subsystem: "schedule", Name: "overdue_seconds",
			Help: "How long the earliest occurrence that is not dealt with has been due; 0 when none is, and while the schedule is paused.",
		}, []string{"schedule"}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "runner", Subsystem: "schedule", Name: "lag_seconds",
			Help:    "Time from an occurrence to its runs.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 12), // 10 ms to 12 h
		}),
		led: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "runner", Subsystem: "schedule", Name: "led", Help: "Schedules that this process fires."}),
	}
	for _, c := range []prometheus.Collector{m.fires, m.missed, m.failed, m.overdue, m.lag, m.led} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Fired records an occurrence that became runs, lag after it was due, and how
// many the catch-up policy dropped with it.
func (m *Schedules) Fired(schedule string, lag time.Duration, missed int) {
	if m == nil {
		return
	}
	m.fires.WithLabelValues(schedule, "fired").Inc()
	m.missed.WithLabelValues(schedule).Add(float64(missed))
	m.lag.Observe(max(0, lag.Seconds()))
}

// Skipped records an occurrence that was skipped for a live run.
func (m *Schedules) Skipped(schedule string, missed int) {
	if m == nil {
		return
	}
	m.fires.WithLabelValues(schedule, "skipped").Inc()
	m.missed.WithLabelValues(schedule).Add(float64(missed))
}

// Failed records a try that failed.
func (m *Schedules) Failed(schedule string) {
	if m != nil {
		m.failed.WithLabelValues(schedule).Inc()
	}
}

// Overdue publishes how long a schedule's earliest occurrence has waited.
func (m *Schedules) Overdue(schedule string, d time.Duration) {
	if m != nil {
		m.overdue.WithLabelValues(schedule).Set(max(0, d.Seconds()))
	}
}

// NotLed forgets what only the process that leads a schedule knows.
func (m *Schedules) NotLed(schedule string) {
	if m != nil {
		m.overdue.DeleteLabelValues(schedule)
	}
}

// Led publishes how many schedules this process leads.
func (m *Schedules) Led(n int) {
	if m != nil {
		m.led.Set(float64(n))
	}
}
