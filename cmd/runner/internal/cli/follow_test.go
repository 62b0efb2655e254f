package cli

import (
	"strings"
	"testing"

	"github.com/jobrunner/runner/engine/job"
)

// Where a run goes on, what it failed with before is not told as how it stands.
func TestAFailureThatARunGoesOnFromIsTheLast(t *testing.T) {
	for state, want := range map[job.State]bool{
		job.Ready: true, job.Running: true, job.Suspended: true, // retried, or resumed since
		job.Delayed: false, job.Dead: false, job.Failed: false, // because of it
	} {
		line := standing(job.Run{State: state, Error: job.Failure{Code: "X_CARD_DECLINED", Message: "no"}})
		if !strings.Contains(line, "X_CARD_DECLINED") || strings.Contains(line, "last failure: ") != want {
			t.Errorf("%s: %s", state, line)
		}
	}
}
