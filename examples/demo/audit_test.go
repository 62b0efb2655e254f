package main

import (
	"io"
	"slices"
	"testing"
)

func state(job, id, at string, steps ...step) moment { return moment{job, id, at, steps} }

// moment is a run with its steps at one moment.
type moment struct {
	job, id, state string
	steps          []step
}

func runs(rs ...moment) []run {
	var all []run
	for _, r := range rs {
		all = append(all, run{ID: r.id, Job: r.job, State: r.state, History: r.steps})
	}
	return all
}

func TestAuditTellsACutStepFromOneThatRanAgain(t *testing.T) {
	done := func(name string, failures int) step { return step{Name: name, Status: "completed", Failures: failures} }
	retrying := func(name string, failures int) step {
		return step{Name: name, Status: "retrying", Failures: failures}
	}
	for _, c := range []struct {
		name          string
		kill, end     []step
		before, after int
		repeated, cut bool
	}{
		{"recorded before the kill and left alone", []step{done("s", 0)}, []step{done("s", 0)}, 1, 0, false, false},
		{"recorded before the kill and run again", []step{done("s", 0)}, []step{done("s", 0)}, 1, 1, true, false},
		{"recorded and run again on the first server", []step{done("s", 0)}, []step{done("s", 0)}, 2, 0, true, false},
		{"cut short", nil, []step{done("s", 0)}, 1, 1, false, true},
		{"not begun", nil, []step{done("s", 0)}, 0, 1, false, false},
		{"not begun and run twice", nil, []step{done("s", 0)}, 0, 2, true, false},
		{"retried across the kill", []step{retrying("s", 1)}, []step{done("s", 2)}, 1, 2, false, false},
		{"retried, and cut short in its second try", []step{retrying("s", 1)}, []step{done("s", 1)}, 2, 1, false, true},
		{"failed for good and left alone", []step{{Name: "s", Status: "failed", Failures: 1}}, []step{{Name: "s", Status: "failed", Failures: 1}}, 1, 0, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := key{"r", "s"}
			a := audit{
				atKill: runs(state("j", "r", "running", c.kill...)), atEnd: runs(state("j", "r", "done", c.end...)),
				before: map[key]int{k: c.before}, after: map[key]int{k: c.after},
			}
			repeated, cut := a.steps()
			if slices.Contains(repeated, k) != c.repeated || slices.Contains(cut, k) != c.cut {
				t.Errorf("repeated %v, cut %v", repeated, cut)
			}
		})
	}
}

func TestReportFailsWhenAnExpectationDoesNotHold(t *testing.T) {
	good := audit{
		atKill: runs(state("j", "r", "running"), state("j", "q", "ready")),
		atEnd:  []run{{ID: "r", Job: "j", State: "done", Attempts: []attempt{{"orphaned"}}}, {ID: "q", Job: "j", State: "dead"}},
	}
	if n := good.report(io.Discard, wanted{"j": {"done": 1, "dead": 1}}); n != 0 {
		t.Errorf("%d expectations did not hold", n)
	}
	if n := good.report(io.Discard, wanted{"j": {"done": 2}}); n == 0 {
		t.Error("one run done where two were wanted, and nothing is said")
	}
	idle := good
	idle.atKill = runs(state("j", "r", "done"))
	idle.atEnd = []run{{ID: "r", Job: "j", State: "done"}}
	if n := idle.report(io.Discard, wanted{"j": {"done": 1}}); n != 1 {
		t.Errorf("a kill while nothing was under way shows nothing: %d", n)
	}
}

func TestTheInvoicesEndAsTheirReadmeSays(t *testing.T) {
	want, err := writeInputs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got := want["post-invoice"]; got["done"] != 292 || got["dead"] != 8 {
		t.Errorf("%v", got)
	}
}
