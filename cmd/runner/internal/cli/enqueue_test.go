package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Whoever asked hears once what the trouble is, that the outcome is open, and how
// to find out.
func TestAnUnknownOutcomeIsSaidWithItsCause(t *testing.T) {
	busy := &abi.Error{Code: job.CodeDatabaseBusy, Message: "it is locked", Fix: "see who holds it"}
	for name, c := range map[string]struct {
		err   error
		wants []string
		open  bool
	}{
		"an answer that never came": {errors.Join(context.DeadlineExceeded, store.ErrUnknown), []string{"X_DATABASE_UNAVAILABLE: the database did not answer in time"}, true},
		"after a trouble":           {errors.Join(busy, context.DeadlineExceeded, store.ErrUnknown), []string{"X_DATABASE_BUSY: it is locked; ", "to do: see who holds it; then"}, true},
		"nothing happened":          {busy, []string{"X_DATABASE_BUSY: it is locked\n"}, false},
	} {
		var out bytes.Buffer
		e := &env{Params: Params{Stderr: &out}, command: "runner enqueue"}
		if code := e.fail(unknownOutcome(c.err)); code != exitCannot {
			t.Errorf("%s: exit code %d", name, code)
		}
		for _, want := range c.wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q lacks %q", name, out.String(), want)
			}
		}
		if got := strings.Contains(out.String(), "may have been enqueued or not") && strings.Contains(out.String(), "enqueue again"); got != c.open || strings.Count(out.String(), "runner enqueue: ") != 1 {
			t.Errorf("%s: it says %q", name, out.String())
		}
	}
}
