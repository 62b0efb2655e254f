package host

import "github.com/jobrunner/runner/host/instance"

// Stats is a snapshot of a host, for metrics.
type Stats struct {
	Instances instance.Stats
	Running   int // attempts and loads in flight
	SlotsUsed int // CPU slots that guests hold
	Slots     int
}

// Stats counts what is there now.
func (h *Host) Stats() Stats {
	h.mu.Lock()
	running := h.runs
	h.mu.Unlock()
	return Stats{Instances: h.pool.Stats(), Running: running, SlotsUsed: h.slots.InUse(), Slots: h.slots.Cap()}
}
