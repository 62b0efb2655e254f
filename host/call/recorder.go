package call

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/tetratelabs/wazero/api"
)

// recorder makes a transcript of a guest's calls: their names, parameters and
// what it put out. Two calls from the same image give the same one.
type recorder struct{ h hash.Hash }

func newRecorder() *recorder { return &recorder{h: sha256.New()} }

func (r *recorder) call(name string, types []api.ValueType, stack []uint64) {
	r.h.Write([]byte(name))
	for i, t := range types {
		p := stack[i]
		if t == api.ValueTypeI32 {
			p = uint64(uint32(p)) // compiled code leaves the upper half as it was
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], p)
		r.h.Write(b[:])
	}
}

func (r *recorder) bytes(b []byte) { r.h.Write(b) }

func (r *recorder) sum() []byte { return r.h.Sum(nil) }
