package instance

import (
	"sync/atomic"
)

// wasmPage is the unit in which memory grows.
const wasmPage = 64 << 10

// memory is one instance's linear memory, as wazero's allocator hook wants it.
// It is used by one goroutine at a time, but for running.
type memory struct {
	b         []byte // the whole reservation (mapped), or what was allocated so far
	mapped    bool   // b is mapped, and never moves
	committed uint64 // how much of a mapped b can be accessed
	limit     uint64 // of its size, in bytes
	peak      uint64 // the most it was since the last reset
	shrink    uint64 // if not 0, the next Reallocate answers this size
	refused   int    // growths refused since the last reset
	freed     bool

	// running is set while compiled code may touch the memory. Free then
	// leaks a mapping: it is the second line behind the pool, which closes no
	// instance that is in use.
	running atomic.Bool
}

// newMemory reserves memory that may grow to limit bytes, a multiple of a wasm page.
func newMemory(mode Mode, limit uint64) (*memory, error) {
	m := &memory{limit: limit}
	if mode == Copy || !canMap {
		return m, nil
	}
	b, err := reserve(limit)
	if err != nil {
		return nil, err
	}
	m.b, m.mapped = b, true
	return m, nil
}

// Reallocate implements experimental.LinearMemory.
func (m *memory) Reallocate(size uint64) []byte {
	if m.shrink != 0 {
		size = m.shrink
		return m.b[:size:size]
	}
	if size > m.limit {
		m.refused++
		return nil
	}
	if m.mapped && size > m.committed {
		// Address space that cannot be accessed counts nowhere, not even where
		// the system refuses to promise more memory than it has.
		if commit(m.b[m.committed:size]) != nil {
			m.refused++
			return nil
		}
		m.committed = size
	}
	if size > uint64(len(m.b)) { // never when mapped
		nb := make([]byte, min(m.limit, max(size, 2*uint64(len(m.b)))))
		copy(nb, m.b)
		m.b = nb
	}
	m.peak = max(m.peak, size)
	return m.b[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() {
	if m.freed || m.running.Load() {
		return
	}
	m.freed = true
	if m.mapped {
		unmap(m.b[:cap(m.b)])
	}
	m.b = nil
}
