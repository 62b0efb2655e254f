package manifest

import (
	"testing"
	"time"
)

func TestAStepHasThePolicyOfItsName(t *testing.T) {
	m, report := Parse("jobs.toml", []byte(minimal+`
step_timeout = "30s"
retry = { attempts = 5 }
[jobs.a.steps."charge card"]
timeout = "10s"
retry = { attempts = 2, delay = "7s", backoff = "fixed", jitter = false }
[jobs.a.steps.slow]
timeout = "1m"
`))
	if report != nil {
		t.Fatal(report.Text())
	}
	j := m.Jobs["a"]
	for name, want := range map[string]struct {
		timeout  time.Duration
		attempts int
	}{
		"charge card": {10 * time.Second, 2}, "charge card#2": {10 * time.Second, 2}, "charge card#x": {30 * time.Second, 0},
		"slow": {time.Minute, 0}, "other": {30 * time.Second, 0}, "": {30 * time.Second, 0},
	} {
		p := j.Step(name)
		attempts := 0
		if p.Retry != nil {
			attempts = p.Retry.Attempts
		}
		if p.Timeout != want.timeout || attempts != want.attempts {
			t.Errorf("step %q has %v and %d attempts, want %+v", name, p.Timeout, attempts, want)
		}
	}
}
