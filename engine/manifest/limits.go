package manifest

import (
	"slices"

	"github.com/jobrunner/runner/engine/limit"
)

// Limits are what claims of a queue keep to, by the declaration of the queue and
// of its jobs; nil is nothing. strays are jobs of other queues of which this one
// has runs left.
func (m *Manifest) Limits(queue string, strays ...string) *limit.Queue {
	q := m.Queues[queue]
	out := &limit.Queue{PerTenant: q.PerTenant, TenantHere: q.TenantWorkers}
	if q.Rate != nil {
		out.Rate, out.ByTenant = q.Rate.limit(), q.Rate.By == "tenant"
	}
	for name, j := range m.Jobs {
		if l := j.limit(); l != (limit.Job{}) && (j.Queue == queue || slices.Contains(strays, name)) {
			if out.Jobs == nil {
				out.Jobs = map[string]limit.Job{}
			}
			out.Jobs[name] = l
		}
	}
	if out.Empty() {
		return nil
	}
	return out
}

func (r *Rate) limit() limit.Rate { return limit.Rate{Limit: r.Limit, Per: r.Per} }

func (j *Job) limit() (l limit.Job) {
	if c := j.Concurrency; c.Limit > 0 {
		l.Concurrency, l.Keyed, l.Fail = c.Limit, c.Keyed, c.Fail
	}
	if j.Rate != nil {
		l.Rate = j.Rate.limit()
	}
	return l
}

// Limited reports whether runs of j are held to limits of their own.
func (j *Job) Limited() bool { return j.limit() != (limit.Job{}) }

// Gate is the gate of a run of j with that input, "" without a limit of
// concurrency. Errors: X_JOB_KEY_INVALID, for an input that renders no key.
func (j *Job) Gate(input []byte, runID string) (string, error) {
	switch c := j.Concurrency; {
	case c.Limit == 0:
		return "", nil
	case !c.Keyed:
		return limit.JobGate(j.Name), nil
	default:
		key, err := c.Key.Render(input, runID)
		if err != nil {
			return "", err
		}
		return limit.KeyGate(j.Name, key), nil
	}
}

// Prioritised reports whether runs of a queue may differ in priority by their
// declarations, so that one could be passed over again and again.
func (m *Manifest) Prioritised(queue string) bool {
	first, seen := 0, false
	for _, j := range m.Jobs {
		if j.Queue != queue {
			continue
		}
		if seen && j.Priority != first {
			return true
		}
		first, seen = j.Priority, true
	}
	return false
}
