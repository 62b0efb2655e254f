package instance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is what Acquire answers once its template or pool is closed.
var ErrClosed = errors.New("instance: closed")

// Pool keeps the instances of many templates within one bound. It is safe for
// concurrent use.
type Pool struct {
	cfg Config

	mu        sync.Mutex // never held while an instance is made, reset or closed
	templates []*Template
	idleBytes int64
	closed    bool

	work sync.WaitGroup // goroutines that reset

	spawns, boots, resets, discards, evictions atomic.Uint64
}

// New is an empty pool.
func New(c Config) (*Pool, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Pool{cfg: c}, nil
}

func (p *Pool) add(t *Template) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.templates = append(p.templates, t)
	return nil
}

// Acquire hands out an instance whose memory no attempt has written: the one
// idle for the shortest time, or a new one. The caller gives it back with
// Release. Errors: ErrClosed, and whatever making one meets.
func (t *Template) Acquire(ctx context.Context) (*Instance, error) {
	p := t.pool
	p.mu.Lock()
	if t.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	t.out++
	if n := len(t.idle); n > 0 {
		in := t.idle[n-1]
		t.idle[n-1] = nil
		t.idle = t.idle[:n-1]
		p.idleBytes -= in.bytes()
		p.mu.Unlock()
		return in, nil
	}
	var in *Instance
	if n := len(t.used); n > 0 { // its reset costs less than a new one
		in = t.used[n-1]
		t.used[n-1] = nil
		t.used = t.used[:n-1]
	}
	p.mu.Unlock()

	if in != nil {
		if in.reset() == nil {
			return in, nil
		}
		p.discards.Add(1)
		in.close(ctx)
	}
	in, err := t.make(ctx)
	if err != nil {
		t.returned()
		return nil, err
	}
	return in, nil
}

func (t *Template) make(ctx context.Context) (*Instance, error) {
	if t.mode == Fresh {
		t.pool.boots.Add(1)
		return t.newBooted(ctx)
	}
	t.pool.spawns.Add(1)
	return t.spawn(ctx)
}

// Resets of at most this many pages happen in Release: waking a goroutine
// costs more than they do. Others wait for one, off the attempt's latency.
const (
	inlineImage = 2 << 20 // bytes: reading the page map of a larger image is 10 µs and more
	inlinePages = 32
)

// Release takes an instance back. With discard it is closed, which is for one
// whose state outside memory and globals is in doubt: a host function panicked
// in it, or its native stack overflowed.
func (t *Template) Release(in *Instance, discard bool) {
	p := t.pool
	if discard || t.mode == Fresh {
		if discard {
			p.discards.Add(1)
		}
		in.close(context.Background())
		t.returned()
		return
	}
	if t.mode == Pagemap && t.image.size <= inlineImage && in.resident <= inlinePages && in.mem.peak-t.image.size <= inlinePages*4096 {
		t.recycle(in)
		return
	}
	p.mu.Lock()
	t.used = append(t.used, in)
	t.out--
	start := !t.drains
	if start {
		t.drains = true
		p.work.Add(1)
	}
	p.mu.Unlock()
	if start {
		go t.drain()
	}
}

// drain resets the used instances until there are none.
func (t *Template) drain() {
	p := t.pool
	defer p.work.Done()
	for {
		p.mu.Lock()
		n := len(t.used)
		if n == 0 {
			t.drains = false
			p.mu.Unlock()
			t.maybeFree()
			return
		}
		in := t.used[n-1]
		t.used[n-1] = nil
		t.used = t.used[:n-1]
		t.out++
		p.mu.Unlock()
		t.recycle(in)
	}
}

// recycle resets an instance that counts as out, and makes it idle.
func (t *Template) recycle(in *Instance) {
	if err := in.reset(); err != nil {
		t.pool.discards.Add(1)
		in.close(context.Background())
		t.returned()
		return
	}
	t.put(in)
}

// put makes a reset instance that counts as out idle, and keeps the bound.
func (t *Template) put(in *Instance) {
	p := t.pool
	p.mu.Lock()
	if t.closed || p.cfg.MaxIdleBytes < 0 {
		p.mu.Unlock()
		in.close(context.Background())
		t.returned()
		return
	}
	t.out--
	in.idleSince, in.trimmed = time.Now(), false
	t.idle = append(t.idle, in)
	p.idleBytes += in.bytes()
	var evicted []*Instance
	for p.idleBytes > p.cfg.MaxIdleBytes {
		oldest := p.longestIdle()
		if oldest == nil {
			break
		}
		in := oldest.idle[0]
		oldest.idle = slices.Delete(oldest.idle, 0, 1)
		p.idleBytes -= in.bytes()
		oldest.out++
		evicted = append(evicted, in)
	}
	p.mu.Unlock()
	for _, in := range evicted {
		p.evictions.Add(1)
		in.close(context.Background())
		in.t.returned()
	}
}

// longestIdle is the template whose first idle instance waits longest, nil if
// nothing is idle. The caller holds the lock.
func (p *Pool) longestIdle() *Template {
	var oldest *Template
	for _, t := range p.templates {
		if len(t.idle) > 0 && (oldest == nil || t.idle[0].idleSince.Before(oldest.idle[0].idleSince)) {
			oldest = t
		}
	}
	return oldest
}

// returned counts an instance that was out as gone.
func (t *Template) returned() {
	t.pool.mu.Lock()
	t.out--
	t.pool.mu.Unlock()
	t.maybeFree()
}

// Close closes the idle instances and refuses new ones. Those in use work on,
// and the last of them to come back frees the image.
func (t *Template) Close() {
	p := t.pool
	p.mu.Lock()
	if t.closed {
		p.mu.Unlock()
		return
	}
	t.closed = true
	idle := t.idle
	t.idle = nil
	for _, in := range idle {
		p.idleBytes -= in.bytes()
	}
	t.out += len(idle)
	p.templates = slices.DeleteFunc(p.templates, func(o *Template) bool { return o == t })
	p.mu.Unlock()
	for _, in := range idle {
		in.close(context.Background())
		t.returned()
	}
	t.maybeFree()
}

// maybeFree frees a closed template once nothing of it is left.
func (t *Template) maybeFree() {
	p := t.pool
	p.mu.Lock()
	if !t.closed || t.freed || t.out > 0 || len(t.used) > 0 || t.drains {
		p.mu.Unlock()
		return
	}
	t.freed = true
	p.mu.Unlock()
	if t.image != nil {
		t.image.close()
	}
	if t.free != nil {
		t.free()
	}
}

// Close closes every template and waits for the resets that run. It does not
// wait for instances in use: their caller does that first.
func (p *Pool) Close() {
	p.mu.Lock()
	all := slices.Clone(p.templates)
	p.closed = true
	p.mu.Unlock()
	for _, t := range all {
		t.Close()
	}
	p.work.Wait()
}
