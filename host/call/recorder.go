package call

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// recorder makes a transcript of a guest's calls: their names, parameters and
// what it put out. Two calls from the same image give the same one.
type recorder struct{ h hash.Hash }

func newRecorder() *recorder { return &recorder{h: sha256.New()} }

func (r *recorder) call(name string, params []uint64) {
	r.h.Write([]byte(name))
	for _, p := range params {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], p)
		r.h.Write(b[:])
	}
}

func (r *recorder) bytes(b []byte) { r.h.Write(b) }

func (r *recorder) sum() []byte { return r.h.Sum(nil) }
