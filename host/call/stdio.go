package call

import (
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// maxTail is how much of the end of stderr a failure gets, in bytes; keptTail
// how much is kept to take it from.
const (
	maxTail  = 4 << 10
	keptTail = maxTail + beyondCut
)

// maxLine is how much of a line is kept, in bytes.
const maxLine = abi.MaxLogLine + beyondCut

// truncatedLine is logged once when a guest has written more than abi.MaxStdio.
const truncatedLine = "output truncated: more than 64 KiB on stdout and stderr"

// stdio is what a guest wrote to stdout and stderr.
type stdio struct {
	lines   [2]line // stdout, stderr
	total   int64
	dropped int64
	tail    []byte // of stderr: at least its last keptTail bytes, at most twice that
	fatal   string // the first line of stderr by which a language runtime announces its end
	full    bool
}

// line is a line that is not complete yet.
type line struct {
	b    []byte
	skip bool // the rest of it: maxLine is reached
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
			l.b = append(l.b, b[:min(n, maxLine-len(l.b))]...)
			l.skip = len(l.b) == maxLine
		}
		if whole {
			s.flushLine(which)
			n++
		}
		b = b[n:]
	}
	if o.dropped > 0 && !o.full {
		o.full = true
		if len(s.secrets) > 0 { // the cut may have gone through one
			l.b = l.b[:0]
		}
		s.flushLine(0)
		s.flushLine(stderr)
		s.log(abi.LevelWarn, truncatedLine)
	}
}

// keep remembers the end of stderr.
func (o *stdio) keep(b []byte) {
	if len(b) > keptTail {
		b = b[len(b)-keptTail:]
		o.tail = o.tail[:0]
	}
	if len(o.tail)+len(b) > 2*keptTail {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-keptTail:]...)
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
		text := s.log(level, string(l.b))
		if which == stderr && s.stdio.fatal == "" && (strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")) {
			s.stdio.fatal = text
		}
	}
	l.b, l.skip = l.b[:0], false
}

// log tells the operator, unless the module is only being brought up. It
// answers the line without secrets, cut and fit to be shown.
func (s *State) log(level abi.Level, text string) string {
	text = wire.LogLine([]byte(s.redact(text)))
	if s.calls != nil {
		s.calls.Log(s.Context, level, text)
	}
	return text
}

// stderrTail is the end of stderr as text, without secrets.
func (s *State) stderrTail() string {
	text := s.redact(string(s.stdio.tail))
	return text[max(0, len(text)-maxTail):]
}

// deadlocked reports whether Go's runtime ended the guest because none of its
// goroutines could go on. Its announcement is the first thing it writes, but
// may come after the limit of what is read line by line.
func (s *State) deadlocked() bool {
	const announcement = "fatal error: all goroutines are asleep - deadlock!"
	return strings.HasPrefix(s.stdio.fatal, announcement) || strings.Contains(s.stderrTail(), announcement)
}
