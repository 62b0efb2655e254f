package sim_test

import (
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/manifest"
)

// jobs are those that every version has.
var jobs = []string{
	"parent", "child", "keyed", "tick", "listener", // no limits
	"saga", "family", // undone, and waiting for others
	"told",                     // on_settled of some
	"narrow", "lane", "strict", // few at a time: of a job, and of a key
	"metered", "drip", "crowd", // rates: of a job, of a queue, of tenants
}

// declare says what of the jobs is not as usual.
func (w *world) declare(m *manifest.Manifest) {
	for _, q := range []manifest.Queue{
		{Name: "default", Workers: 4}, {Name: "side", Workers: 2}, {Name: "lanes", Workers: 3},
		{Name: "drip", Workers: 2, Rate: rateOf("queue drip")},
		{Name: "crowd", Workers: 3, Rate: rateOf("queue crowd"), PerTenant: perTenant},
	} {
		q.AgeAfter = 2 * time.Minute
		m.Queues[q.Name] = q
	}
	for _, j := range m.Jobs {
		j.Retry.Attempts = 8
		j.Timeout = time.Minute
	}
	for _, name := range []string{"child", "told", "metered"} {
		m.Jobs[name].Queue = "side"
	}
	m.Jobs["tick"].Retention = time.Minute
	m.Jobs["keyed"].Retry.DeadLetter = false

	m.Jobs["saga"].Compensates = true
	m.Jobs["saga"].Retry.Attempts = 3
	m.Jobs["family"].Queue = "side"

	m.Jobs["narrow"].Concurrency = manifest.Concurrency{Limit: narrow}
	for _, name := range []string{"lane", "strict"} {
		j := m.Jobs[name]
		j.Queue = "lanes"
		j.Concurrency = manifest.Concurrency{Limit: 1, Key: enginetest.Key("{lane}"), Keyed: true, Fail: name == "strict"}
	}
	m.Jobs["metered"].Rate = rateOf("job metered")
	m.Jobs["drip"].Queue = "drip"
	m.Jobs["crowd"].Queue = "crowd"
	m.Jobs["crowd"].Tenant = enginetest.Tenant("{org}")

	for _, name := range []string{"saga", "narrow", "strict", "metered"} {
		m.Jobs[name].OnSettled = "told"
	}
}
