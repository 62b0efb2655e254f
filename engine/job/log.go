package job

import "time"

// What a handler logs is, in the process's log, the attribute LogAttr of the event
// LogEvent: no line of a handler passes for an event of the runner.
const (
	LogEvent = "jobs.handler.log"
	LogAttr  = "line"
)

// LogLine is a line that a handler logged.
type LogLine struct {
	// Seq counts the lines of the run, from 1; where a store is given lines, those
	// of their attempt. Where it jumps, lines were dropped.
	Seq     int64
	At      time.Time
	Attempt int // of the run's; a store knows it
	Level   string
	Step    string // in whose body, "" outside of any
	Text    string
}

// Size is what the line counts against MaxLogBytes.
func (l *LogLine) Size() int { return len(l.Step) + len(l.Text) }

// A run's last lines are kept, at most so many and so many bytes of them.
const (
	MaxLogLines = 200
	MaxLogBytes = 64 << 10
)

// Levels of lines, as they are stored and shown.
const (
	LogDebug = "debug"
	LogInfo  = "info"
	LogWarn  = "warn"
	LogError = "error"
)
