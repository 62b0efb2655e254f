package call

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSlotsServeInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1)
		var first ticket
		if err := s.acquire(t.Context(), &first); err != nil {
			t.Fatal(err)
		}
		var order []int
		var tickets [3]ticket
		for i := range 3 {
			go func() {
				if err := s.acquire(t.Context(), &tickets[i]); err != nil {
					t.Error(err)
				}
				order = append(order, i)
				s.release(&tickets[i])
			}()
			synctest.Wait()
		}
		if !s.contended() || s.InUse() != 1 {
			t.Errorf("contended %v, in use %d", s.contended(), s.InUse())
		}
		s.release(&first)
		synctest.Wait()
		if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 || s.contended() || s.InUse() != 0 {
			t.Errorf("served in order %v; contended %v, in use %d", order, s.contended(), s.InUse())
		}
	})
}

func TestALentSlotComesBackUnlessItTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1)
		var a, b ticket
		if err := s.acquire(t.Context(), &a); err != nil {
			t.Fatal(err)
		}
		s.lend(&a)
		if !a.reclaim() {
			t.Fatal("a slot that nobody wants is gone")
		}
		got := make(chan struct{})
		go func() {
			if err := s.acquire(t.Context(), &b); err != nil {
				t.Error(err)
			}
			close(got)
		}()
		synctest.Wait()
		s.lend(&a)
		if !a.reclaim() {
			t.Fatal("a slot was taken at once")
		}
		s.lend(&a)
		<-got // in a moment of virtual time
		if a.reclaim() {
			t.Fatal("two hold one slot")
		}
		s.release(&a) // has none: changes nothing
		if s.InUse() != 1 {
			t.Errorf("in use %d", s.InUse())
		}
		s.release(&b)
		s.release(&b)
		if s.InUse() != 0 {
			t.Errorf("in use %d", s.InUse())
		}
	})
}

// An arrival takes a slot that is lent for long without waiting for the watcher.
func TestAnArrivalTakesALongLentSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1)
		var a, b ticket
		if err := s.acquire(t.Context(), &a); err != nil {
			t.Fatal(err)
		}
		s.lend(&a)
		time.Sleep(lentFor)
		before := time.Now()
		if err := s.acquire(t.Context(), &b); err != nil || !time.Now().Equal(before) {
			t.Errorf("error %v after %v", err, time.Since(before))
		}
		if a.reclaim() {
			t.Error("two hold one slot")
		}
		s.release(&b)
	})
}

func TestAWaiterThatGivesUpLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1)
		var a, b ticket
		if err := s.acquire(t.Context(), &a); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- s.acquire(ctx, &b) }()
		synctest.Wait()
		cancel(errUp)
		if err := <-ended; err != errUp {
			t.Errorf("error %v", err)
		}
		if s.contended() {
			t.Error("it is still in the queue")
		}
		s.release(&a)
		if s.InUse() != 0 {
			t.Errorf("in use %d", s.InUse())
		}
	})
}

func TestNeverMoreHoldersThanSlots(t *testing.T) {
	const size = 3
	s := NewSlots(size)
	var holding, most atomic.Int32
	hold := func() {
		if n := holding.Add(1); n > most.Load() {
			most.Store(n)
		}
	}
	var wg sync.WaitGroup
	for w := range 12 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for range 300 {
				var k ticket
				ctx, cancel := context.WithCancel(t.Context())
				if rng.IntN(5) == 0 {
					go cancel()
				}
				if s.acquire(ctx, &k) == nil {
					hold()
					for range rng.IntN(3) {
						holding.Add(-1)
						s.lend(&k)
						if rng.IntN(20) == 0 {
							time.Sleep(lentFor) // long enough to lose it
						}
						if !k.reclaim() && s.acquire(t.Context(), &k) != nil {
							t.Error("acquire failed")
						}
						hold()
					}
					holding.Add(-1)
				}
				s.release(&k)
				cancel()
			}
		}()
	}
	wg.Wait()
	if most.Load() > size || s.InUse() != 0 || s.contended() {
		t.Errorf("at most %d held %d slots; in use %d, contended %v", most.Load(), size, s.InUse(), s.contended())
	}
}
