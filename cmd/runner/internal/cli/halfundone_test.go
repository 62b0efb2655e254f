package cli

import (
	"encoding/json"
	"slices"
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

// What is still to be undone is listed in the order in which it will be, of a run that is
// at it and of one that stopped, and of no other.
func TestWhatIsStillToBeUndoneIsListed(t *testing.T) {
	own := job.Failure{Code: "X_CARD", Message: "no money"}
	forward := []job.Step{
		{Name: "flight", Seq: 1, Kind: job.KindUndoable, Status: job.StepCompleted},
		{Name: "hotel", Seq: 2, Kind: job.KindUndoable, Status: job.StepCompleted},
		{Name: "car", Seq: 3, Kind: job.KindUndoable, Status: job.StepFailed},
	}
	begun := append(slices.Clone(forward), job.Step{Name: job.UnwindName, Seq: 4, Kind: job.KindUnwind, Status: job.StepCompleted, Error: own})
	one := append(slices.Clone(begun), job.Step{Name: job.CompensationPrefix + "hotel", Seq: 5, Kind: job.KindCompensation, Status: job.StepCompleted})
	all := append(slices.Clone(one), job.Step{Name: job.CompensationPrefix + "flight", Seq: 6, Kind: job.KindCompensation, Status: job.StepCompleted})
	stopped := job.Failure{Code: job.CodeCompensationFailed, Message: "x"}
	for _, c := range []struct {
		what  string
		run   job.Run
		steps []job.Step
		want  []string
	}{
		{"running forward", job.Run{State: job.Running}, forward, nil},
		{"begun", job.Run{State: job.Ready}, begun, []string{"hotel", "flight"}},
		{"under way", job.Run{State: job.Delayed, Error: own}, one, []string{"flight"}},
		{"nearly done", job.Run{State: job.Running}, all, nil},
		{"stopped", job.Run{State: job.Dead, Error: stopped}, one, []string{"flight"}},
		{"undone", job.Run{State: job.Dead, Error: own}, all, nil},
		{"ended where it was", job.Run{State: job.Cancelled}, one, nil},
	} {
		b, err := json.Marshal(viewHistory(history{run: c.run, steps: c.steps}, redact))
		var got struct {
			ToUndo []string `json:"to_undo"`
		}
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil || !slices.Equal(got.ToUndo, c.want) {
			t.Errorf("%s: %q are to be undone, %v, want %q", c.what, got.ToUndo, err, c.want)
		}
		var text strings.Builder
		printTimeline(&text, style{}, history{run: c.run, steps: c.steps}, redact)
		if left := strings.Join(c.want, ", "); left != "" && !strings.Contains(text.String(), "undo   "+left+"\n") && !strings.Contains(text.String(), "not undone: "+left+".") || left == "" && strings.Contains(text.String(), "to undo") {
			t.Errorf("%s: want %q in\n%s", c.what, left, text.String())
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
