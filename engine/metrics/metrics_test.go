package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/metrics"
)

// value reads one sample by name and label values in label order.
func value(t *testing.T, r *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	sample:
		for _, m := range f.GetMetric() {
			for i, l := range m.GetLabel() {
				if l.GetValue() != labels[i] {
					continue sample
				}
			}
			if m.GetGauge() != nil {
				return m.GetGauge().GetValue()
			}
			return m.GetCounter().GetValue()
		}
	}
	return -1
}

func TestOutcomesThatAreNoVerdictMoveNoTally(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := metrics.New(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []job.Outcome{
		job.Completed, job.Slept, job.Shed, job.Interrupted, job.Deferred,
		job.Retried, job.Dropped, job.DeadLettered,
	} {
		m.Attempt("mail", "send", o, time.Second)
	}
	for outcome, want := range map[string]float64{"ok": 1, "failed": 2, "dead": 1} {
		if got := value(t, r, "runner_jobs_total", outcome, "mail"); got != want {
			t.Errorf("jobs_total{outcome=%q} is %v, want %v", outcome, got, want)
		}
	}
}

// A claim that ends with its worker is no verdict, unless it was the run's last:
// then it is the verdict that the run's state tells.
func TestABurialIsCountedAsWhatItMadeOfTheRun(t *testing.T) {
	r := prometheus.NewRegistry()
	m, _ := metrics.New(r)
	for _, to := range []job.State{job.Ready, job.Ready, job.Dead, job.Failed} {
		m.Orphaned("mail", to)
	}
	for _, c := range []struct {
		name, label string
		want        float64
	}{
		{"runner_orphaned_total", "requeued", 2},
		{"runner_orphaned_total", "buried", 2},
		{"runner_jobs_total", "dead", 1},
		{"runner_jobs_total", "failed", 1},
		{"runner_jobs_total", "ok", -1}, // there is none
	} {
		labels := []string{"mail", c.label}
		if c.name == "runner_jobs_total" {
			labels = []string{c.label, "mail"}
		}
		if got := value(t, r, c.name, labels...); got != c.want {
			t.Errorf("%s{%s} is %v, want %v", c.name, c.label, got, c.want)
		}
	}
}

func TestTheAgeOfAQueueIsInSecondsAndNeverNegative(t *testing.T) {
	r := prometheus.NewRegistry()
	m, _ := metrics.New(r)
	m.Queue("a", metrics.QueueCounts{Ready: 3, Running: 4, Dead: 2, Oldest: 90 * time.Second})
	m.Queue("b", metrics.QueueCounts{Oldest: -time.Second})
	for _, c := range []struct {
		name, queue string
		want        float64
	}{
		{"runner_queue_oldest_due_seconds", "a", 90},
		{"runner_queue_oldest_due_seconds", "b", 0},
		{"runner_queue_depth", "a", 3},
		{"runner_queue_demand", "a", 7},
		{"runner_queue_dead_jobs", "a", 2},
	} {
		if got := value(t, r, c.name, c.queue); got != c.want {
			t.Errorf("%s{%s} is %v, want %v", c.name, c.queue, got, c.want)
		}
	}
}

func TestANilMetricsRecordsNothing(t *testing.T) {
	m, err := metrics.New(nil)
	if m != nil || err != nil {
		t.Fatalf("New(nil) = %v, %v", m, err)
	}
	m.Attempt("q", "j", job.Completed, 0)
	m.Queue("q", metrics.QueueCounts{Ready: 1})
	m.Workers(1)
	m.Events(1, time.Second)
	m.Step(metrics.StepRun)
	m.Batch("settle", 1)
	m.Enqueued("inserted", 1)
	m.Orphaned("q", job.Dead)
	m.LeaseLost("q")
	m.ReplayDiverged("j")
	m.Slots("q", 1, 2)
	m.SettleUnowned()
	m.SettleFailed()
	m.Purged(1)
}

func TestASecondRegistrationIsAnError(t *testing.T) {
	r := prometheus.NewRegistry()
	if _, err := metrics.New(r); err != nil {
		t.Fatal(err)
	}
	if _, err := metrics.New(r); err == nil || !strings.Contains(err.Error(), "duplicate") {
		t.Errorf("error is %v, want one about a duplicate", err)
	}
}
