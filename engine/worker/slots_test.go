package worker

import (
	"testing"

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
	s.configure(map[string]int{"q": 2})
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
	s.configure(map[string]int{"q": 80})
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
	s.configure(map[string]int{"q": 4})
	for range 4 {
		s.take("q")
	}
	s.claimed([]store.QueueLimit{{Queue: "q", Limit: 4}}, map[string]int{"q": 4})
	if waiting, enough := s.ended("q"); !waiting || !enough {
		t.Errorf("with one of four slots free: waiting %t, enough %t", waiting, enough)
	}
}
