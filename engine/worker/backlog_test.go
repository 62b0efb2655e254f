package worker

import "testing"

func TestTheBacklogKeepsOrderAndDoesNotGrowBehindWhatIsTaken(t *testing.T) {
	var b backlog
	var all []*attempt
	push := func() {
		a := new(attempt)
		all = append(all, a)
		b.push(a)
	}
	for range 8 {
		push()
	}
	room := cap(b.waiting)
	for i := range 1000 { // never empty
		if got := b.take(); got != all[i] {
			t.Fatalf("attempt %d was taken out of its order", i)
		}
		push()
	}
	if cap(b.waiting) > 2*room {
		t.Errorf("8 attempts wait in room for %d", cap(b.waiting))
	}
	for i := 1000; i < len(all); i++ {
		if got := b.take(); got != all[i] {
			t.Fatalf("attempt %d was taken out of its order", i)
		}
	}
	if b.take() != nil {
		t.Error("an attempt was taken that nobody gave")
	}
}
