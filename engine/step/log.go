package step

import (
	"sync"

	"github.com/jobrunner/runner/engine/job"
)

// logBuffer are the lines of an attempt that no store has yet, the last ones that
// a run would keep. The guest adds to it, the worker takes from it.
type logBuffer struct {
	mu    sync.Mutex
	seq   int64 // of the latest line
	size  int
	lines []job.LogLine
}

func (b *logBuffer) add(l job.LogLine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	l.Seq = b.seq
	b.lines = append(b.lines, l)
	b.size += l.Size()
	drop := 0
	for len(b.lines)-drop > job.MaxLogLines || b.size > job.MaxLogBytes {
		b.size -= b.lines[drop].Size()
		drop++
	}
	b.forget(drop)
}

// forget drops the first n lines.
func (b *logBuffer) forget(n int) {
	if n == 0 {
		return
	}
	if n == len(b.lines) {
		b.lines = nil
		return
	}
	clear(b.lines[:n])
	b.lines = b.lines[n:]
}

// UnsavedLog are the lines that are to be kept of the attempt and were not saved
// yet. Any goroutine may ask.
func (a *Attempt) UnsavedLog() []job.LogLine {
	b := &a.log
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lines) == 0 {
		return nil
	}
	return append([]job.LogLine(nil), b.lines...)
}

// LogSaved says that the store has the lines up to that one.
func (a *Attempt) LogSaved(seq int64) {
	b := &a.log
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.lines) && b.lines[n].Seq <= seq {
		b.size -= b.lines[n].Size()
		n++
	}
	b.forget(n)
}
