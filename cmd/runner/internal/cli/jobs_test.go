package cli

import (
	"encoding/json"
	"strings"
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

// A run that has aged is said to have, beside the priority that somebody asked for.
func TestAPriorityIsShownAsItWasAskedFor(t *testing.T) {
	for _, c := range []struct {
		priority   int
		aged       bool
		json, text string
	}{
		{0, false, `"priority":0,`, ""},
		{-100, false, `"priority":-100,`, "-100"},
		{0, true, `"aged":true,`, "0, but before all others"},
		{7, true, `"priority":7,`, "7, but before all others"},
	} {
		run := job.Run{ID: "x", Priority: c.priority, Aged: c.aged}
		b, err := json.Marshal(viewRun(run, redact))
		if err != nil {
			t.Fatal(err)
		}
		if s := string(b); !strings.Contains(s, c.json) || strings.Contains(s, "aged") != c.aged {
			t.Errorf("%d is %s", c.priority, s)
		}
		var text strings.Builder
		printTimeline(&text, style{}, history{run: run}, redact)
		if _, said, _ := strings.Cut(text.String(), "priority "); c.text != "" && !strings.HasPrefix(strings.TrimSpace(said), c.text) || c.text == "" && said != "" {
			t.Errorf("%d is shown as\n%s", c.priority, text.String())
		}
	}
}
