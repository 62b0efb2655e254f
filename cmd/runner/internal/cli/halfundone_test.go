package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
)

// What a run that stopped half undone leaves to a person is named, with the way on;
// one that was undone to its end leaves what its own failure does.
func TestARunThatStoppedHalfUndoneSaysWhatIsLeft(t *testing.T) {
	own := job.Failure{Code: "X_CARD", Message: "no money", Fix: "earn some"}
	steps := []job.Step{
		{Name: "flight", Seq: 1, Kind: job.KindUndoable, Status: job.StepCompleted},
		{Name: "look", Seq: 2, Kind: job.KindStep, Status: job.StepCompleted},
		{Name: "hotel", Seq: 3, Kind: job.KindUndoable, Status: job.StepCompleted},
		{Name: "car", Seq: 4, Kind: job.KindUndoable, Status: job.StepCompleted},
		{Name: job.UnwindName, Seq: 5, Kind: job.KindUnwind, Status: job.StepCompleted, Error: own},
		{Name: job.CompensationPrefix + "car", Seq: 6, Kind: job.KindCompensation, Status: job.StepCompleted},
		{Name: job.CompensationPrefix + "hotel", Seq: 7, Kind: job.KindCompensation, Status: job.StepFailed},
	}
	for _, c := range []struct {
		failure job.Failure
		want    string
	}{
		{job.Failure{Code: job.CodeCompensationFailed, Message: "x", Fix: "see"}, "to do     not undone: hotel, flight."},
		{job.Failure{Code: job.CodeWorkerLost, Message: "x", Fix: "find out"}, "to do     find out; not undone: hotel, flight."},
		{own, "to do     earn some\n"},
	} {
		var text strings.Builder
		printTimeline(&text, style{}, history{run: job.Run{ID: "01", State: job.Dead, Error: c.failure}, steps: steps}, redact)
		if !strings.Contains(text.String(), c.want) {
			t.Errorf("want %q in\n%s", c.want, text.String())
		}
		if half := c.failure != own; half != strings.Contains(text.String(), "runner jobs retry 01") {
			t.Errorf("of the way on it says\n%s", text.String())
		}
	}
}

// A bulk retry prints the ids of the runs that are ready, which are fresh ones in
// place of those that were undone, and as JSON both.
func TestABulkRetryPrintsTheFreshIDs(t *testing.T) {
	res := engine.BulkResult{Moved: []string{"old", "plain", "half"}, Undoing: []string{"half"}, Fresh: map[string]string{"old": "new"}}
	for _, asJSON := range []bool{false, true} {
		var out, said strings.Builder
		a := &act{env: &env{Params: Params{Stdout: &out, Stderr: &said}, json: asJSON}, done: "ready again", bulk: engine.BulkParams{Verb: engine.BulkRetry}}
		if err := a.print(res); err != nil {
			t.Fatal(err)
		}
		if !asJSON {
			if out.String() != "new\nplain\nhalf\n" {
				t.Errorf("printed %q", out.String())
			}
			if s := said.String(); !strings.Contains(s, "go on being undone: 1") || !strings.Contains(s, "in place of runs that were undone: 1") {
				t.Errorf("said %q", s)
			}
			continue
		}
		var got bulkView
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
			t.Fatal(err)
		}
		if strings.Join(got.IDs, " ") != "new plain half" || got.InPlaceOf["new"] != "old" || len(got.InPlaceOf) != 1 {
			t.Errorf("answered %+v", got)
		}
	}
}
