package call

import (
	"crypto/rand"
	"encoding/binary"
)

// random is a guest's source of random bytes: outside steps SplitMix64 from the
// run's seed, which makes attempts of a run alike and is not for secrets;
// inside a step the system's.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) fill(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, r.next())
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], r.next())
		copy(b, last[:])
	}
}

// randomPart is how much is filled between two ticks, in bytes: whole numbers of
// the generator, so that it does not show.
const randomPart = 256 << 10

// fillRandom is what random and random_get do. A guest may ask for as much as it
// has memory.
func (s *State) fillRandom(b []byte) {
	for ; len(b) > randomPart; b = b[randomPart:] {
		s.fillPart(b[:randomPart])
		s.tick()
	}
	s.fillPart(b)
}

func (s *State) fillPart(b []byte) {
	if s.inStep {
		_, _ = rand.Read(b) // never fails: the process dies first
		return
	}
	s.random.fill(b)
}
