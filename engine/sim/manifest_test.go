package sim_test

import (
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/manifest"
)

// jobs are those that every version has.
var jobs = []string{
	"parent", "child", "keyed", "tick", "listener", "subscriber", // no limits
	"saga", "family", // undone, and waiting for others
	"told",                     // on_settled of some
	"narrow", "lane", "strict", // few at a time: of a job, and of a key
	"metered", "drip", "crowd", // rates: of a job, of a queue, of tenants
	"nest",                      // one at a time, each waiting for others of it
	"eased", "hurried", "moved", // limits that one version has otherwise: none, another rate, another queue
}

// declare says what of the jobs is not as usual. Limits differ between versions.
func (w *world) declare(m *manifest.Manifest, version int) {
	pick := func(of ...int) int { return of[version-1] }
	for _, q := range []manifest.Queue{
		{Name: "default", Workers: 4}, {Name: "side", Workers: 2}, {Name: "lanes", Workers: 3},
		{Name: "drip", Workers: 2, Rate: &manifest.Rate{Limit: 4, Per: 10 * time.Second, By: "queue"}},
		{Name: "crowd", Workers: 3, Rate: &manifest.Rate{Limit: pick(5, 7), Per: 20 * time.Second, By: "tenant"}, PerTenant: pick(2, 3), TenantWorkers: pick(0, 1)},
	} {
		q.AgeAfter = 2 * time.Minute
		m.Queues[q.Name] = q
	}
	for _, j := range m.Jobs {
		j.Retry.Attempts = 8
		j.Timeout = time.Minute
	}
	for _, name := range []string{"child", "told", "metered", "family", "nest", "eased"} {
		m.Jobs[name].Queue = "side"
	}
	for name, keep := range map[string]time.Duration{"tick": time.Minute, "child": 90 * time.Second, "told": 2 * time.Minute, "crowd": 2 * time.Minute, "drip": time.Minute} {
		m.Jobs[name].Retention = keep
	}
	m.Jobs["keyed"].Retry.DeadLetter = false

	m.Jobs["saga"].Compensates = true
	m.Jobs["saga"].Retry.Attempts = 3

	m.Jobs["narrow"].Concurrency = manifest.Concurrency{Limit: pick(2, 3)}
	m.Jobs["nest"].Concurrency = manifest.Concurrency{Limit: 1}
	for _, name := range []string{"lane", "strict"} {
		j := m.Jobs[name]
		j.Queue = "lanes"
		j.Concurrency = manifest.Concurrency{Limit: 1, Key: enginetest.Key("{lane}"), Keyed: true, Fail: name == "strict"}
	}
	m.Jobs["lane"].Concurrency.Limit = pick(2, 1)
	m.Jobs["metered"].Rate = &manifest.Rate{Limit: 3, Per: 5 * time.Second}
	m.Jobs["drip"].Queue = "drip"
	m.Jobs["crowd"].Queue = "crowd"
	for _, name := range []string{"crowd", "subscriber"} {
		m.Jobs[name].Tenant = enginetest.Tenant("{org}")
	}

	m.Jobs["eased"].Concurrency = manifest.Concurrency{Limit: pick(1, 0)}
	m.Jobs["hurried"].Rate = []*manifest.Rate{{Limit: 3, Per: 30 * time.Second}, {Limit: 4, Per: 5 * time.Second}}[version-1]
	m.Jobs["moved"].Queue = []string{"default", "side"}[version-1]
	m.Jobs["moved"].Concurrency = manifest.Concurrency{Limit: 1}

	for _, name := range []string{"saga", "narrow", "strict", "metered"} {
		m.Jobs[name].OnSettled = "told"
	}
}
