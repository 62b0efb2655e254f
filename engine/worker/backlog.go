package worker

import "sync"

// backlog are attempts that wait for a goroutine to begin. A goroutine is started
// for each, so that nothing waits for an attempt that takes its time; but one whose
// attempt has ended takes the next, and who comes too late for any is gone at once.
// So short attempts share a few stacks. Safe for concurrent use.
type backlog struct {
	mu      sync.Mutex
	waiting []*attempt // from next on, in order
	next    int
}

// start has the attempt begin without waiting for it.
func (b *backlog) start(a *attempt) {
	b.push(a)
	go b.work()
}

func (b *backlog) push(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == cap(b.waiting) && b.next > 0 { // rather than to grow
		n := copy(b.waiting, b.waiting[b.next:])
		clear(b.waiting[n:])
		b.waiting, b.next = b.waiting[:n], 0
	}
	b.waiting = append(b.waiting, a)
}

// take is the attempt that has waited longest; nil if none does.
func (b *backlog) take() *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == len(b.waiting) {
		b.waiting, b.next = b.waiting[:0], 0
		return nil
	}
	a := b.waiting[b.next]
	b.waiting[b.next] = nil
	b.next++
	return a
}

// work works attempts off until none waits.
func (b *backlog) work() {
	a := b.take()
	if a == nil {
		return
	}
	growStack(0)
	for ; a != nil; a = b.take() {
		a.work()
	}
}

// growStack has the goroutine's stack grown at once to what an attempt needs,
// while there is next to nothing on it to be copied. Otherwise it would be
// doubled and copied again and again on the way into the guest, a tenth of the
// time of a short attempt.
//
//go:noinline
func growStack(i int) byte {
	var room [12 << 10]byte
	room[i] = 1
	return room[len(room)-1-i]
}
