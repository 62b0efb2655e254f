package worker

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/store"
)

// free answers how many runs the only queue may claim.
func free(s *slots) int {
	for _, l := range s.free(nil) {
		return l.Limit
	}
	return 0
}

func TestASlotIsAnothersWhileTheVerdictIsWritten(t *testing.T) {
	var s slots
	s.configure(map[string]int{"q": 2}, 0)
	s.take("q")
	s.take("q")
	if s.take("q") || free(&s) != 0 {
		t.Fatal("two slots held three runs")
	}
	s.ended("q")
	if n := free(&s); n != 1 {
		t.Errorf("%d runs may be claimed once a guest has ended, want 1", n)
	}
	s.take("q")
	s.ended("q")
	s.take("q")
	if n := free(&s); n != 0 {
		t.Errorf("%d runs may be claimed beside 2 guests and 2 verdicts, want none", n)
	}
	s.settled("q")
	s.settled("q")
	s.release("q")
	if n := free(&s); n != 1 {
		t.Errorf("%d runs may be claimed beside one guest, want 1", n)
	}
}

func TestAClaimWaitsForMoreThanACrumbOfManySlots(t *testing.T) {
	var s slots
	s.configure(map[string]int{"q": 80}, 0)
	for range 80 {
		s.take("q")
	}
	s.claimed([]store.QueueLimit{{Queue: "q", Limit: 80}}, map[string]int{"q": 80})
	for i := 1; i <= 30; i++ {
		waiting, enough := s.ended("q")
		if !waiting || enough != (i >= 20) {
			t.Errorf("with %d free slots: waiting %t, enough %t", i, waiting, enough)
		}
	}
	s.claimed([]store.QueueLimit{{Queue: "q", Limit: 30}}, map[string]int{"q": 3})
	if waiting, _ := s.settled("q"); waiting {
		t.Error("a claim waits though the last one left nothing behind")
	}
}

func TestAClaimDoesNotWaitForMoreOfAFewSlots(t *testing.T) {
	var s slots
	s.configure(map[string]int{"q": 4}, 0)
	for range 4 {
		s.take("q")
	}
	s.claimed([]store.QueueLimit{{Queue: "q", Limit: 4}}, map[string]int{"q": 4})
	if waiting, enough := s.ended("q"); !waiting || !enough {
		t.Errorf("with one of four slots free: waiting %t, enough %t", waiting, enough)
	}
}

func TestSlotsOfAllQueuesTogether(t *testing.T) {
	var s slots
	s.configure(map[string]int{"a": 10, "b": 10, "c": 10}, 4)
	asked := map[string]int{}
	first := s.free(nil)
	total := 0
	for _, q := range first {
		asked[q.Queue] += q.Limit
		total += q.Limit
	}
	if total != 4 {
		t.Fatalf("asked for %v, 4 may run", first)
	}
	for range 3 {
		if !s.take("a") {
			t.Fatal("no slot while there is room")
		}
	}
	seen := map[string]bool{}
	for range 3 { // one slot is left: each queue has its turn
		for _, q := range s.free(nil) {
			if q.Limit != 1 {
				t.Fatalf("asked for %v, 1 may run", q)
			}
			seen[q.Queue] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("asked only %v", seen)
	}
	if !s.take("b") || s.take("c") || s.take("a") {
		t.Error("the fifth has a slot, or the fourth none")
	}
	if len(s.free(nil)) != 0 {
		t.Error("asked while all is full")
	}
	if waiting, enough := s.ended("a"); !waiting || !enough {
		t.Error("nobody waits for the slot of another queue")
	}
	if !s.take("c") {
		t.Error("no slot after one was given back")
	}
}

// The gauges tell what a reload made of the queues, though no claim follows: a full
// queue is not asked for, and one that the manifest has no more never again.
func TestTheGaugesOfSlotsFollowAReload(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	s := slots{metrics: m}
	want := func(when string, want map[string]float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			if name := f.GetName(); name == "runner_worker_slots" || name == "runner_worker_slots_busy" {
				for _, x := range f.GetMetric() {
					got[name[len("runner_worker_"):]+" "+x.GetLabel()[0].GetValue()] = x.GetGauge().GetValue()
				}
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", when, d)
		}
	}
	s.configure(map[string]int{"q": 2, "gone": 2}, 0)
	want("before any claim", map[string]float64{"slots q": 2, "slots_busy q": 0, "slots gone": 2, "slots_busy gone": 0})
	for _, name := range []string{"q", "gone", "gone"} {
		s.take(name)
	}
	s.configure(map[string]int{"q": 1, "new": 3}, 0)
	want("after a reload", map[string]float64{"slots q": 1, "slots_busy q": 1, "slots gone": 0, "slots_busy gone": 2, "slots new": 3, "slots_busy new": 0})
	s.ended("gone")
	want("one has ended", map[string]float64{"slots q": 1, "slots_busy q": 1, "slots gone": 0, "slots_busy gone": 1, "slots new": 3, "slots_busy new": 0})
	s.release("gone")
	want("both have", map[string]float64{"slots q": 1, "slots_busy q": 1, "slots new": 3, "slots_busy new": 0})
}
