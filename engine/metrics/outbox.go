package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Outbox records what relays do. A nil *Outbox records nothing. All methods are
// safe for concurrent use; name says which outbox, of the few that one process
// relays from. The gauges are the same number on every process that relays from
// it: aggregate them with max.
type Outbox struct {
	waiting   *prometheus.GaugeVec
	oldest    *prometheus.GaugeVec
	parked    *prometheus.GaugeVec
	published *prometheus.CounterVec
	rejected  *prometheus.CounterVec
	missed    *prometheus.CounterVec
	failed    *prometheus.CounterVec
}

// NewOutbox registers the metrics of relays with r. A nil r answers a nil
// *Outbox. The error is that of a name r already knows.
func NewOutbox(r prometheus.Registerer) (*Outbox, error) {
	if r == nil {
		return nil, nil
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "runner", Subsystem: "outbox", Name: name, Help: help}, []string{"outbox"})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "runner", Subsystem: "outbox", Name: name, Help: help}, append([]string{"outbox"}, labels...))
	}
	m := &Outbox{
		waiting:   gauge("staged", "Rows that wait to be published, counted to 100,000."),
		oldest:    gauge("oldest_seconds", "How long the row that was staged first has waited."),
		parked:    gauge("parked", "Rejected rows that wait for a person, counted to 100,000."),
		published: counter("published_total", "Rows published, by result: inserted, or deduped because a run stood for the row already.", "result"),
		rejected:  counter("rejected_total", "Rows parked because no run can be made of them, by code.", "code"),
		missed:    counter("settle_missed_total", "Rows that were another relay's when this one had published them."),
		failed:    counter("pass_failed_total", "Passes that ended early because a database did not take part."),
	}
	for _, c := range []prometheus.Collector{m.waiting, m.oldest, m.parked, m.published, m.rejected, m.missed, m.failed} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Backlog publishes what the outbox counted.
func (m *Outbox) Backlog(name string, waiting, parked int64, oldest time.Duration) {
	if m == nil {
		return
	}
	m.waiting.WithLabelValues(name).Set(float64(waiting))
	m.parked.WithLabelValues(name).Set(float64(parked))
	m.oldest.WithLabelValues(name).Set(max(0, oldest.Seconds()))
}

// Published records rows that a run stands for: their own, or an earlier one.
func (m *Outbox) Published(name string, inserted, deduped int) {
	if m == nil {
		return
	}
	m.published.WithLabelValues(name, "inserted").Add(float64(inserted))
	m.published.WithLabelValues(name, "deduped").Add(float64(deduped))
}

// Rejected records rows that were parked with a code.
func (m *Outbox) Rejected(name, code string, n int) {
	if m != nil {
		m.rejected.WithLabelValues(name, code).Add(float64(n))
	}
}

// Missed records settles that found their row gone.
func (m *Outbox) Missed(name string, n int) {
	if m != nil && n > 0 {
		m.missed.WithLabelValues(name).Add(float64(n))
	}
}

// Failed records a pass that ended early.
func (m *Outbox) Failed(name string) {
	if m != nil {
		m.failed.WithLabelValues(name).Inc()
	}
}
