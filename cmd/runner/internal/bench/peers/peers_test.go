package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFiguresAreReadFromWhatPeersPrint(t *testing.T) {
	got, err := figures("river insert_many 41000 jobs/s\nsomething else\nriver work 10900 jobs/s\nriver latency p50 4.90 ms p99 10.01 ms\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{insert: 41000, work: 10900, latencyP50: 4.9, latencyP99: 10.01}, got); diff != "" {
		t.Error(diff)
	}
	got, err = figures("dbos 212 workflows/s 1060 steps/s")
	if err != nil || got[steps] != 1060 || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := figures("panic: no database"); err == nil {
		t.Error("no figure, and no error")
	}
}

func TestRatiosAreOfMediansAgainstTheBetterPeer(t *testing.T) {
	r := &report{
		order: []string{"runner", "river", "graphile", "dbos"},
		Samples: map[string]map[string][]float64{
			"runner":   {work: {30, 10, 20}, insert: {13}, latencyP50: {2}, steps: {90}},
			"river":    {work: {8}, insert: {10}, latencyP50: {5}},
			"graphile": {work: {8, 12}},
		},
		Failures: map[string]string{"dbos": "go: not\nfound"},
	}
	r.finish()
	want := []ratio{
		{Name: "no-op jobs worked", Peer: "graphile", Ratio: 2, Target: 2, Met: true},
		{Name: "bulk insert", Peer: "river", Ratio: 1.3, Target: 1.3, Met: true},
		{Name: "enqueue to start, p50", Peer: "river", Ratio: 0.4, Target: 0.3, Low: true},
	}
	if diff := cmp.Diff(want, r.Ratios); diff != "" {
		t.Error(diff)
	}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"20 (10 to 30)", "dbos", "not measured: go: not found", "at most 0.3", "MISSED"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("it does not say %q:\n%s", text, out.String())
		}
	}
}
