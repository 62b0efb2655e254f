package hub

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func post(h *Hub, queues ...string) { h.Post(slices.Values(queues)) }

func TestABurstOfCommitsIsOneCallForEachQueueAndListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New()
		defer h.Close()
		var mu sync.Mutex
		heard := map[string]int{}
		gate := make(chan struct{})
		for _, name := range []string{"one ", "two "} {
			_, first := h.Listen(func(queue string) {
				mu.Lock()
				heard[name+queue]++
				mu.Unlock()
				<-gate
			})
			if first != (name == "one ") {
				t.Errorf("first is %v for %s", first, name)
			}
		}
		post(h, "a")
		synctest.Wait() // the first call is under way
		for range 100 {
			post(h, "a", "b")
		}
		close(gate)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for _, name := range []string{"one ", "two "} {
			if heard[name+"a"] != 2 || heard[name+"b"] != 1 {
				t.Errorf("heard %v; want a twice and b once by each", heard)
			}
		}
	})
}

func TestAStopAndACloseWaitForTheCallUnderWay(t *testing.T) {
	for _, closes := range []bool{false, true} {
		h := New()
		called, gate := make(chan struct{}), make(chan struct{})
		done := false
		stop, _ := h.Listen(func(string) {
			close(called)
			<-gate
			done = true // a race, if nobody waits for it
		})
		post(h, "a")
		<-called
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if closes {
				h.Close()
			} else {
				stop()
			}
			if !done {
				t.Error("it came back while the listener was being called")
			}
		}()
		close(gate)
		<-ended
		post(h, "a") // nobody listens: a second call would close a closed channel
		h.Close()
		if stop, first := h.Listen(func(string) { t.Error("called after the close") }); first {
			t.Error("a closed hub begins anew")
		} else {
			stop()
		}
		post(h, "a")
	}
}

func TestNothingIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New()
		defer h.Close()
		h.Listen(func(queue string) { t.Errorf("called with %q", queue) })
		post(h)
		synctest.Wait()
	})
}
