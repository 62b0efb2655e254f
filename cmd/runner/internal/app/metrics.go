package app

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/jobrunner/runner/host"
)

// registerProcess adds what the process says of itself to the metrics.
func registerProcess(r prometheus.Registerer) error {
	return register(r, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// registerHost adds what a host says of itself.
func registerHost(r prometheus.Registerer, h *Host) error { return register(r, hostCollector{h}) }

func register(r prometheus.Registerer, all ...prometheus.Collector) error {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// hostMetric is one number of a host.
type hostMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(host.Stats) float64
	label []string
}

func hostDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName("runner", "host", name), help, labels, nil)
}

var (
	instancesDesc = hostDesc("instances", "Instances of modules, by what they do: busy, resetting, idle.", "state")
	madeDesc      = hostDesc("instances_made_total", "Instances made: image (from a memory image) or boot (for one attempt).", "from")
)

var hostMetrics = []hostMetric{
	{hostDesc("cpu_slots", "Guests that may run at a time."), prometheus.GaugeValue, func(s host.Stats) float64 { return float64(s.Slots) }, nil},
	{hostDesc("cpu_slots_used", "Guests that run now."), prometheus.GaugeValue, func(s host.Stats) float64 { return float64(s.SlotsUsed) }, nil},
	{hostDesc("modules", "Modules whose memory image is kept."), prometheus.GaugeValue, func(s host.Stats) float64 { return float64(s.Instances.Templates) }, nil},
	{hostDesc("image_bytes", "Size of all memory images."), prometheus.GaugeValue, func(s host.Stats) float64 { return float64(s.Instances.ImageBytes) }, nil},
	{hostDesc("idle_bytes", "About what idle instances keep."), prometheus.GaugeValue, func(s host.Stats) float64 { return float64(s.Instances.IdleBytes) }, nil},
	{instancesDesc, prometheus.GaugeValue, func(s host.Stats) float64 { return float64(s.Instances.Out) }, []string{"busy"}},
	{instancesDesc, prometheus.GaugeValue, func(s host.Stats) float64 { return float64(s.Instances.Waiting) }, []string{"resetting"}},
	{instancesDesc, prometheus.GaugeValue, func(s host.Stats) float64 { return float64(s.Instances.Idle) }, []string{"idle"}},
	{madeDesc, prometheus.CounterValue, func(s host.Stats) float64 { return float64(s.Instances.Spawns) }, []string{"image"}},
	{madeDesc, prometheus.CounterValue, func(s host.Stats) float64 { return float64(s.Instances.Boots) }, []string{"boot"}},
	{hostDesc("resets_total", "Memories put back to their image."), prometheus.CounterValue, func(s host.Stats) float64 { return float64(s.Instances.Resets) }, nil},
	{hostDesc("discards_total", "Instances closed because their state was in doubt."), prometheus.CounterValue, func(s host.Stats) float64 { return float64(s.Instances.Discards) }, nil},
	{hostDesc("evictions_total", "Idle instances closed to keep the bound of memory."), prometheus.CounterValue, func(s host.Stats) float64 { return float64(s.Instances.Evictions) }, nil},
}

// hostCollector reads a host once for each scrape, so that its numbers fit each
// other.
type hostCollector struct{ host *Host }

// Describe implements prometheus.Collector.
func (c hostCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range hostMetrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c hostCollector) Collect(ch chan<- prometheus.Metric) {
	stats := c.host.Stats()
	for _, m := range hostMetrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(stats), m.label...)
	}
}
