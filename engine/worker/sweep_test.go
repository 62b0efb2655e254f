package worker_test

import (
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
