package instance

import (
	"bytes"
	"errors"
)

// reset puts the instance back to its image: memory, its size, and globals.
func (in *Instance) reset() error {
	t, m := in.t, in.mem
	var err error
	switch t.mode {
	case Pagemap:
		err = in.copyWritten()
	case Compare, Copy:
		err = in.copyDifferent()
	default:
		err = errors.New("an instance without an image cannot be reset")
	}
	if err != nil {
		return err
	}
	if uint64(in.mod.Memory().Size()) != t.image.size {
		// There is no call to shrink memory, but growing asks the allocator
		// for the new slice, and may be given a shorter one.
		m.shrink = t.image.size
		_, ok := in.mod.Memory().Grow(1)
		m.shrink = 0
		if !ok || uint64(in.mod.Memory().Size()) != t.image.size {
			return errors.New("memory did not shrink to its image")
		}
	}
	m.peak = t.image.size
	m.refused = 0
	for i, g := range in.globals {
		g.Set(t.globals[i])
	}
	t.pool.resets.Add(1)
	return nil
}

// copyWritten copies back the pages that were written. Pages beyond the image
// are cleared rather than dropped, so that a guest that grows in every attempt
// finds them mapped.
func (in *Instance) copyWritten() error {
	m, im := in.mem, in.t.image
	limit := in.t.pool.cfg.MaxDirtyPages
	n, err := written(m.b[:m.peak], limit, func(lo, hi int) {
		if size := int(im.size); lo < size {
			copied := copy(m.b[lo:min(hi, size)], im.bytes[lo:])
			lo += copied
		}
		if lo < hi {
			clear(m.b[lo:hi])
		}
	})
	if err != nil {
		return err
	}
	if in.resident = n; n > limit {
		in.resident = 0
		return drop(m.b[:m.peak])
	}
	return nil
}

// comparedBlock is the unit of copyDifferent: small enough to leave clean
// pages unwritten on every system.
const comparedBlock = 4096

// copyDifferent copies back the blocks that differ from the image.
func (in *Instance) copyDifferent() error {
	m, im := in.mem, in.t.image
	limit := in.t.pool.cfg.MaxDirtyPages
	n := 0
	for o := 0; o < int(im.size); o += comparedBlock {
		end := o + comparedBlock
		if bytes.Equal(m.b[o:end], im.bytes[o:end]) {
			continue
		}
		if n++; m.mapped && n > limit {
			break
		}
		copy(m.b[o:end], im.bytes[o:end])
	}
	grown := int(m.peak-im.size) / comparedBlock
	if m.mapped && n+grown > limit {
		in.resident = 0
		return drop(m.b[:m.peak])
	}
	switch {
	case m.mapped:
		in.resident = max(in.resident, n+grown)
		clear(m.b[im.size:m.peak])
	case grown > limit: // what wazero still refers to is replaced when memory shrinks
		m.b = append([]byte(nil), m.b[:im.size]...)
	default:
		clear(m.b[im.size:m.peak])
	}
	return nil
}

// trim gives back the private pages and native stacks of a reset instance; the
// next attempt faults in what it needs from the image.
func (in *Instance) trim() error {
	in.DropFuncs()
	if !in.mem.mapped {
		return nil
	}
	in.resident = 0
	return drop(in.mem.b[:in.mem.peak])
}

// matches reports whether the instance is what its image says, byte for byte.
func (in *Instance) matches() bool {
	t := in.t
	if in.MemoryBytes() != t.image.size || !bytes.Equal(in.mem.b[:t.image.size], t.image.bytes) {
		return false
	}
	for i, g := range in.globals {
		if g.Get() != t.globals[i] {
			return false
		}
	}
	return true
}
