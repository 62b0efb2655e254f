package cli

import (
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func TestDueOf(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		state job.State
		in    time.Duration
		want  string
	}{
		{job.Delayed, 90 * time.Second, "in 1m30s"},
		{job.Suspended, 10 * 365 * 24 * time.Hour, "in 3650d"},
		{job.Suspended, store.InvokeHorizon, ""},
		{job.Suspended, store.InvokeHorizon - 24*time.Hour, ""},
		{job.Ready, time.Hour, ""},
		{job.Running, -time.Hour, ""},
	} {
		if got := dueOf(now, job.Run{State: c.state, CreatedAt: now.Add(-time.Hour), RunAt: now.Add(c.in)}); got != c.want {
			t.Errorf("%s in %v: %q, want %q", c.state, c.in, got, c.want)
		}
	}
}
