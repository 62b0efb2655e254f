package worker_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/worker"
)

func TestAServedQueueThatHasNoRunsIsCountedAsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) { t.Work(time.Minute); return nil, nil }}, func(m *manifest.Manifest) {
			slots(1)(m)
			m.Queues["quiet"] = manifest.Queue{Name: "quiet", Workers: 1}
		})
		registry := prometheus.NewRegistry()
		m, err := metrics.New(registry)
		r.must(err)
		r.enqueue("j")
		r.enqueue("j")
		_, err = r.db.Publish(t.Context(), []store.EventParams{
			{ID: "01970000-0000-7000-8000-0000000000e1", Topic: "t", Payload: []byte("1"), Keep: time.Hour},
			{ID: "01970000-0000-7000-8000-0000000000e2", Topic: "u", Payload: []byte("1"), Keep: time.Hour},
		})
		r.must(err)
		time.Sleep(time.Minute)
		r.work(func(c *worker.Config) { c.Metrics = m })
		time.Sleep(20 * time.Second)
		families, err := registry.Gather()
		r.must(err)
		got := map[string]float64{}
		for _, f := range families {
			for _, x := range f.GetMetric() {
				if g := x.GetGauge(); g != nil {
					name := f.GetName()
					for _, l := range x.GetLabel() {
						name += " " + l.GetValue()
					}
					got[name] = g.GetValue()
				}
			}
		}
		for name, want := range map[string]float64{
			"runner_workers":              1,
			"runner_events_stored":        2,
			"runner_queue_depth default":  1,
			"runner_queue_demand default": 2,
			"runner_queue_depth quiet":    0,
			"runner_queue_demand quiet":   0,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
			}
		}
		// They are counted at times that differ a little from process to process.
		if v := got["runner_events_oldest_seconds"]; v < 60 || v > 80 {
			t.Errorf("the oldest event is %v s old, and was published 80 s ago", v)
		}
	})
}

// Whoever may enqueue by SQL may name queues and jobs as they like: that makes no
// gauges without end.
func TestNamesThatNobodyDeclaredMakeFewLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, nil)
		registry := prometheus.NewRegistry()
		m, err := metrics.New(registry)
		r.must(err)
		var batch []store.EnqueueParams
		for i := range 1500 {
			p := store.EnqueueParams{ID: fmt.Sprintf("01970000-0000-7000-8000-%012x", i), Job: "j", Queue: fmt.Sprintf("q%04d", i), MaxAttempts: 1, Input: []byte("{}")}
			if i < 20 {
				p.Queue, p.Job = "default", fmt.Sprintf("none-%d", i)
			}
			batch = append(batch, p)
		}
		_, err = r.db.Enqueue(t.Context(), batch)
		r.must(err)
		r.work(func(c *worker.Config) { c.Metrics = m })
		r.settles(r.enqueue("j"))
		time.Sleep(40 * time.Second) // twice and more
		families, err := registry.Gather()
		r.must(err)
		jobs := map[string]bool{}
		depth, others := map[string]bool{}, 0.0
		for _, f := range families {
			for _, x := range f.GetMetric() {
				for _, l := range x.GetLabel() {
					switch {
					case f.GetName() == "runner_attempt_duration_seconds" && l.GetName() == "job":
						jobs[l.GetValue()] = true
					case f.GetName() == "runner_queue_depth":
						if depth[l.GetValue()] = true; l.GetValue() == metrics.Others {
							others = x.GetGauge().GetValue()
						}
					}
				}
			}
		}
		if want := []string{metrics.Undeclared, "j"}; !slices.Equal(slices.Sorted(maps.Keys(jobs)), want) {
			t.Errorf("durations of %v, want %v", slices.Sorted(maps.Keys(jobs)), want)
		}
		if len(depth) != 1001 || !depth["default"] || !depth["q0020"] || others != 481 {
			t.Errorf("%d queues have a depth, those that share one have %v", len(depth), others)
		}
	})
}
