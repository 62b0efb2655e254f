package enginetest

import (
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/deploy"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
)

// Key is a template that a test knows to be valid.
func Key(source string) manifest.Template {
	t, err := manifest.ParseKey(source)
	if err != nil {
		panic(err)
	}
	return t
}

// Tenant is a template that a test knows to be valid.
func Tenant(source string) manifest.Template {
	t, err := manifest.ParseTenant(source)
	if err != nil {
		panic(err)
	}
	return t
}

// Schema is a schema that a test knows to be valid.
func Schema(t testing.TB, text string) *manifest.Schema {
	t.Helper()
	s, err := manifest.CompileSchema("test.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Serve is a deployment of one guest with a job for each of its handlers, in
// module "m" and queue "default" with 10 slots. Defaults are those of a
// manifest, but that retries wait a second without jitter. change may adapt it.
func Serve(g *Guest, change func(*manifest.Manifest)) deploy.Deployment {
	m := &manifest.Manifest{
		Digest:  "test",
		Runner:  manifest.Runner{Lease: 30 * time.Second, Drain: 25 * time.Second},
		Queues:  map[string]manifest.Queue{"default": {Name: "default", Workers: 10}},
		Modules: map[string]manifest.Module{"m": {Name: "m"}},
		Jobs:    map[string]*manifest.Job{},
	}
	for name := range g.Handlers {
		m.Jobs[name] = &manifest.Job{
			Name: name, Module: "m", Handler: name, Queue: "default",
			Tenant: manifest.Template{None: true}, Key: Key("{run.id}"),
			Timeout: 10 * time.Minute, StepTimeout: time.Minute,
			OnDeploy: manifest.Pin, Retention: 30 * 24 * time.Hour,
			Retry: job.RetryPolicy{
				Attempts: 3, Backoff: job.BackoffFixed, Delay: time.Second, MaxDelay: time.Hour, DeadLetter: true,
			},
		}
	}
	if change != nil {
		change(m)
	}
	return deploy.Deployment{Manifest: m, Guests: map[string]abi.Guest{"m": g}}
}
