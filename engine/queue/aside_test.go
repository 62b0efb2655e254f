package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

// keeper is a store in which somebody holds numbers: a write with one of them waits
// a second and has done nothing.
type keeper struct {
	mu      sync.Mutex
	holds   []int
	written map[int]int
}

func (k *keeper) write(ctx context.Context, batch []int) ([]int, error) {
	time.Sleep(time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.ContainsFunc(batch, func(n int) bool { return slices.Contains(k.holds, n) }) {
		if !store.IsBrisk(ctx) {
			return nil, errors.New("a batch that would wait for ever")
		}
		k.mu.Unlock()
		time.Sleep(time.Second)
		k.mu.Lock()
		return nil, fmt.Errorf("number: %w", store.ErrHeld)
	}
	for _, n := range batch {
		k.written[n]++
	}
	return double(ctx, batch)
}

func (k *keeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holds = nil
}

// Somebody's transaction is open for an hour: it holds up the entries that need what
// it has, and nobody else.
func TestAnEntryThatIsHeldUpHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{holds: []int{3, 70, 501}, written: map[int]int{}}
		b := doubler(k.write)
		var mu sync.Mutex
		var heard []string
		b.holding = func(err error, entries int) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, fmt.Sprint(err, entries))
		}
		answered := map[int]time.Duration{}
		began := time.Now()
		submit := func(ctx context.Context, n int) {
			b.submit(ctx, n, func(r int, err error) {
				mu.Lock()
				defer mu.Unlock()
				if _, twice := answered[n]; twice || err != nil || r != 2*n {
					t.Errorf("%d was answered %d, %v (before: %v)", n, r, err, twice)
				}
				answered[n] = time.Since(began)
			})
		}
		for n := range 1000 {
			submit(t.Context(), n)
		}
		time.Sleep(time.Minute)
		// Those that come later meet what is held, and only what is held.
		for n := 1000; n < 1100; n++ {
			submit(t.Context(), n)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		for n := range 1100 {
			_, ok := answered[n]
			if held := slices.Contains(k.holds, n); ok == held {
				t.Errorf("%d: answered is %v", n, ok)
			}
			if took := answered[n]; n < 1000 && took > 20*time.Second {
				t.Errorf("%d took %v", n, took)
			}
			if n >= 1000 && answered[n] > time.Minute+100*time.Millisecond {
				t.Errorf("%d came when all was aside that is held, and took %v", n, answered[n]-time.Minute)
			}
		}
		if len(heard) == 0 || len(heard) > 10 {
			t.Errorf("heard %v", heard)
		}
		mu.Unlock()
		// A drain waits for what is aside.
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.wait(short); err == nil {
			t.Error("nothing is left, it is said, and three entries are")
		}
		k.release()
		if err := b.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(answered) != 1100 || heard[len(heard)-1] != "<nil> 0" {
			t.Errorf("%d answered; heard %v", len(answered), heard)
		}
		for n, times := range k.written {
			if times != 1 {
				t.Errorf("%d was written %d times", n, times)
			}
		}
	})
}

// An entry that is held up is given up when its context ends, with what held it up.
func TestAnEntryThatIsHeldUpIsGivenUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{holds: []int{1}, written: map[int]int{}}
		b := doubler(k.write)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var got error
		b.submit(ctx, 1, func(_ int, err error) { got = err })
		if err := b.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(got, store.ErrHeld) || errors.Is(got, store.ErrUnknown) {
			t.Errorf("answered %v", got)
		}
	})
}
