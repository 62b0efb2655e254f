// Package metrics holds the names, labels and recording points of what the
// engine counts. It has no policy: rooms call it when something happened, and
// whoever owns the Registerer decides who may read it.
//
// Gauges of the database (queue depth, age, dead letters, workers) are the same
// number on every process of a fleet: aggregate them with max, not sum.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/engine/job"
)

// Metrics records. A nil *Metrics records nothing, so that a caller needs no
// condition. All methods are safe for concurrent use.
type Metrics struct {
	queueDepth   *prometheus.GaugeVec
	queueDemand  *prometheus.GaugeVec
	queueOldest  *prometheus.GaugeVec
	queueDead    *prometheus.GaugeVec
	jobs         *prometheus.CounterVec
	attempts     *prometheus.HistogramVec
	steps        *prometheus.CounterVec
	leasesLost   *prometheus.CounterVec
	orphaned     *prometheus.CounterVec
	batch        *prometheus.HistogramVec
	enqueues     *prometheus.CounterVec
	diverged     *prometheus.CounterVec
	workers      prometheus.Gauge
	events       prometheus.Gauge
	eventsOldest prometheus.Gauge
	slots        *prometheus.GaugeVec
	slotsBusy    *prometheus.GaugeVec
	unowned      prometheus.Counter
	settleFailed prometheus.Counter
	purged       prometheus.Counter
}

// Labels that stand for names which nobody declares: a database may hold any number
// of those, and a label must not have as many values. They are no names themselves.
const (
	Undeclared = "(undeclared)" // of a job that the manifest does not have
	Others     = "(others)"     // queues past those that have gauges of their own, together
)

// New registers the engine's metrics with r. A nil r answers a nil *Metrics.
// The error is that of a name r already knows.
func New(r prometheus.Registerer) (*Metrics, error) {
	if r == nil {
		return nil, nil
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "runner", Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "runner", Name: name, Help: help}, labels)
	}
	plain := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "runner", Name: name, Help: help})
	}
	m := &Metrics{
		queueDepth:  gauge("queue_depth", "Runs that could be claimed now, counted to 100,000.", "queue"),
		queueDemand: gauge("queue_demand", "Runs that are running or could be claimed now, these counted to 100,000: how many slots the queue could use.", "queue"),
		queueOldest: gauge("queue_oldest_due_seconds", "How long the oldest due run has waited.", "queue"),
		queueDead:   gauge("queue_dead_jobs", "Dead letters that wait for a person.", "queue"),
		jobs:        counter("jobs_total", "Attempts settled, by outcome: ok, failed, dead.", "queue", "outcome"),
		attempts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "runner", Name: "attempt_duration_seconds",
			Help:    "Time from an attempt's start to the end of its guest.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 12), // 0.5 ms to 35 min
		}, []string{"job", "outcome"}),
		steps:      counter("steps_total", "Steps, by result: run, replayed, failed, retried.", "result"),
		leasesLost: counter("leases_lost_total", "Attempts aborted because their claim was no longer theirs.", "queue"),
		orphaned:   counter("orphaned_total", "Claims ended because their worker's lease lapsed.", "queue", "result"),
		batch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "runner", Name: "batch_size",
			Help:    "Entries that shared one write.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11), // 1 to 1,024
		}, []string{"operation"}),
		enqueues: counter("enqueue_total", "Entries of enqueues, by result: inserted, deduped, refused, failed.", "result"),
		diverged: counter("replay_diverged_total", "Runs whose replay did not ask for the steps they had recorded.", "job"),
		workers: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "runner", Name: "workers", Help: "Workers of the fleet whose lease has not lapsed.",
		}),
		events: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "runner", Name: "events_stored", Help: "Events that are kept, counted to 100,000.",
		}),
		eventsOldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "runner", Name: "events_oldest_seconds", Help: "How long ago the oldest event that is kept was published.",
		}),
		slots:        gauge("worker_slots", "Attempts this process runs at a time.", "queue"),
		slotsBusy:    gauge("worker_slots_busy", "Attempts this process holds now.", "queue"),
		unowned:      plain("settle_unowned_total", "Settles that found their claim gone."),
		settleFailed: plain("settle_failed_total", "Settles given up because the store did not answer within the lease."),
		purged:       plain("purged_total", "Finished runs deleted after their retention."),
	}
	for _, c := range []prometheus.Collector{
		m.queueDepth, m.queueDemand, m.queueOldest, m.queueDead, m.workers, m.events, m.eventsOldest, m.jobs, m.attempts, m.steps, m.leasesLost, m.orphaned,
		m.batch, m.enqueues, m.diverged, m.slots, m.slotsBusy, m.unowned, m.settleFailed, m.purged,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// QueueCounts are what the store counted of one queue.
type QueueCounts struct {
	Ready   int64 // could be claimed now
	Running int64
	Dead    int64         // dead letters
	Oldest  time.Duration // how long the oldest ready run has waited
}

// Queue publishes what the store counted of one queue.
func (m *Metrics) Queue(name string, c QueueCounts) {
	if m == nil {
		return
	}
	m.queueDepth.WithLabelValues(name).Set(float64(c.Ready))
	m.queueDemand.WithLabelValues(name).Set(float64(c.Ready + c.Running))
	m.queueOldest.WithLabelValues(name).Set(max(0, c.Oldest.Seconds()))
	m.queueDead.WithLabelValues(name).Set(float64(c.Dead))
}

// Workers publishes how many workers the fleet has.
func (m *Metrics) Workers(n int) {
	if m != nil {
		m.workers.Set(float64(n))
	}
}

// Events publishes how many events are kept, and how old the oldest is.
func (m *Metrics) Events(n int64, oldest time.Duration) {
	if m != nil {
		m.events.Set(float64(n))
		m.eventsOldest.Set(max(0, oldest.Seconds()))
	}
}

// Attempt records an attempt whose settle landed. Suspensions, sheds and
// interruptions move no outcome tally: a rollout must not look like failures.
func (m *Metrics) Attempt(queue, jobName string, o job.Outcome, took time.Duration) {
	if m == nil {
		return
	}
	m.attempts.WithLabelValues(jobName, string(o)).Observe(took.Seconds())
	switch o {
	case job.Completed:
		m.jobs.WithLabelValues(queue, "ok").Inc()
	case job.Retried, job.Dropped, job.Refused:
		m.jobs.WithLabelValues(queue, "failed").Inc()
	case job.DeadLettered:
		m.jobs.WithLabelValues(queue, "dead").Inc()
	}
}

// Orphaned records a claim that a reclaim ended, and the state it left the run
// in: ready again, or buried as dead or failed, which is a verdict.
func (m *Metrics) Orphaned(queue string, to job.State) {
	if m == nil {
		return
	}
	result := "requeued"
	if to.Terminal() {
		result = "buried"
		m.jobs.WithLabelValues(queue, string(to)).Inc()
	}
	m.orphaned.WithLabelValues(queue, result).Inc()
}

// StepResult is what became of a step that a guest asked for.
type StepResult string

const (
	StepRun      StepResult = "run"      // its body ran and is recorded
	StepReplayed StepResult = "replayed" // its record was answered
	StepFailed   StepResult = "failed"   // failed for good
	StepRetried  StepResult = "retried"  // failed, to be run again
)

// Step records a step.
func (m *Metrics) Step(r StepResult) {
	if m != nil {
		m.steps.WithLabelValues(string(r)).Inc()
	}
}

// LeaseLost records an attempt aborted because its claim was gone.
func (m *Metrics) LeaseLost(queue string) {
	if m != nil {
		m.leasesLost.WithLabelValues(queue).Inc()
	}
}

// Batch records how many entries shared one write of operation.
func (m *Metrics) Batch(operation string, n int) {
	if m != nil {
		m.batch.WithLabelValues(operation).Observe(float64(n))
	}
}

// Enqueued records entries of enqueues by result.
func (m *Metrics) Enqueued(result string, n int) {
	if m != nil && n > 0 {
		m.enqueues.WithLabelValues(result).Add(float64(n))
	}
}

// ReplayDiverged records a run whose replay took another path.
func (m *Metrics) ReplayDiverged(jobName string) {
	if m != nil {
		m.diverged.WithLabelValues(jobName).Inc()
	}
}

// Slots publishes how many attempts of a queue run here, and may.
func (m *Metrics) Slots(queue string, busy, limit int) {
	if m != nil {
		m.slots.WithLabelValues(queue).Set(float64(limit))
		m.slotsBusy.WithLabelValues(queue).Set(float64(busy))
	}
}

// NoSlots says that a queue does not run here.
func (m *Metrics) NoSlots(queue string) {
	if m != nil {
		m.slots.DeleteLabelValues(queue)
		m.slotsBusy.DeleteLabelValues(queue)
	}
}

// SettleUnowned records a settle that found its claim gone.
func (m *Metrics) SettleUnowned() {
	if m != nil {
		m.unowned.Inc()
	}
}

// SettleFailed records a settle that was given up.
func (m *Metrics) SettleFailed() {
	if m != nil {
		m.settleFailed.Inc()
	}
}

// Purged records deleted runs.
func (m *Metrics) Purged(n int) {
	if m != nil && n > 0 {
		m.purged.Add(float64(n))
	}
}
