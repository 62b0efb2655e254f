package call

import (
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// maxTail is how much of the end of stderr is kept for a failure, in bytes.
const maxTail = 4 << 10

// truncatedLine is logged once when a guest has written more than abi.MaxStdio.
const truncatedLine = "output truncated: more than 64 KiB on stdout and stderr"

// stdio is what a guest wrote to stdout and stderr.
type stdio struct {
	lines   [2]line // stdout, stderr
	total   int64
	dropped int64
	tail    []byte // of stderr: at least its last maxTail bytes, at most twice that
	fatal   string // the first line of stderr by which a language runtime announces its end
	full    bool
}

// line is a line that is not complete yet.
type line struct {
	b    []byte
	skip bool // the rest of it: abi.MaxLogLine is reached
}

const stderr = 1

// writeStdio takes what a guest writes; which is 0 for stdout and 1 for stderr.
func (s *State) writeStdio(which int, b []byte) {
	o := &s.stdio
	if which == stderr {
		o.keep(b)
	}
	o.total += int64(len(b))
	if room := abi.MaxStdio - (o.total - int64(len(b)) - o.dropped); int64(len(b)) > room {
		o.dropped += int64(len(b)) - room
		b = b[:room]
	}
	l := &o.lines[which]
	for len(b) > 0 {
		n := len(b)
		whole := false
		for i, ch := range b {
			if ch == '\n' {
				n, whole = i, true
				break
			}
		}
		if !l.skip {
			l.b = append(l.b, b[:min(n, abi.MaxLogLine-len(l.b))]...)
			l.skip = len(l.b) == abi.MaxLogLine
		}
		if whole {
			s.flushLine(which)
			n++
		}
		b = b[n:]
	}
	if o.dropped > 0 && !o.full {
		o.full = true
		s.flushLine(0)
		s.flushLine(stderr)
		s.log(abi.LevelWarn, truncatedLine)
	}
}

// keep remembers the end of stderr.
func (o *stdio) keep(b []byte) {
	if len(b) > maxTail {
		b = b[len(b)-maxTail:]
		o.tail = o.tail[:0]
	}
	if len(o.tail)+len(b) > 2*maxTail {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-maxTail:]...)
	}
	o.tail = append(o.tail, b...)
}

// flushLine logs what there is of a line.
func (s *State) flushLine(which int) {
	l := &s.stdio.lines[which]
	if len(l.b) > 0 {
		level := abi.LevelInfo
		if which == stderr {
			level = abi.LevelWarn
		}
		text := wire.LogLine(l.b)
		if which == stderr && s.stdio.fatal == "" && (strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")) {
			s.stdio.fatal = text
		}
		s.log(level, text)
	}
	l.b, l.skip = l.b[:0], false
}

// log tells the operator, unless the module is only being brought up.
func (s *State) log(level abi.Level, text string) {
	if s.calls != nil {
		s.calls.Log(s.Context, level, s.redact(text))
	}
}

// stderrTail is the end of stderr as text.
func (s *State) stderrTail() string {
	b := s.stdio.tail
	return string(b[max(0, len(b)-maxTail):])
}

// deadlocked reports whether Go's runtime ended the guest because none of its
// goroutines could go on. Its announcement is the first thing it writes, but
// may come after the limit of what is read line by line.
func (s *State) deadlocked() bool {
	const announcement = "fatal error: all goroutines are asleep - deadlock!"
	return strings.HasPrefix(s.stdio.fatal, announcement) || strings.Contains(s.stderrTail(), announcement)
}
