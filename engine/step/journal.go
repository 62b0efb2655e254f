package step

import (
	"context"
	"log/slog"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// Log writes a guest's line to the process's log, as an attribute of an event that
// is its own, so that no line passes for an event of the runner. It keeps it for the
// run's log as well: the last ones are saved. Lines of ground that an earlier attempt covered were
// written by it and are dropped. The process's log ends at abi.MaxLog: a handler
// that logs in a loop would fill the disk that the database may be on.
//
// What the process does not log for its level is kept all the same, but for debug.
func (a *Attempt) Log(ctx context.Context, level abi.Level, line string) {
	l := slog.Level(int(level)*4 - 4)
	if a.Replaying() {
		return
	}
	enabled := a.p.Logger.Enabled(ctx, l)
	if !enabled && l < slog.LevelInfo {
		return
	}
	line = cut(line, abi.MaxLogLine)
	a.log.add(job.LogLine{At: a.now(), Level: levelName(l), Step: a.open.name, Text: line})
	if !enabled || a.logged > abi.MaxLog {
		return
	}
	if a.logged += len(line) + abi.LogLineCost; a.logged > abi.MaxLog {
		l, line = slog.LevelWarn, logFull
	}
	attrs := make([]slog.Attr, 4, 6)
	attrs[0] = slog.String(job.LogAttr, line)
	attrs[1] = slog.String("run", a.p.Run.ID)
	attrs[2] = slog.String("job", a.p.Run.Job)
	attrs[3] = slog.Int("attempt", a.p.Run.Attempt)
	if a.p.Run.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", a.p.Run.Tenant))
	}
	if a.open.name != "" {
		attrs = append(attrs, slog.String("step", a.open.name))
	}
	a.p.Logger.LogAttrs(ctx, l, job.LogEvent, attrs...)
}

// levelName is a level as it is stored.
func levelName(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return job.LogDebug
	case l < slog.LevelWarn:
		return job.LogInfo
	case l < slog.LevelError:
		return job.LogWarn
	}
	return job.LogError
}

// logFull is logged once, instead of the line that would go beyond abi.MaxLog.
const logFull = "log truncated: more than 1 MiB in one attempt"

// Progress keeps the latest report for the next renewal and the settle. A share
// that is none is dropped.
func (a *Attempt) Progress(_ context.Context, permille int, note string) {
	if permille < 0 || permille > 1000 {
		return
	}
	a.progress.Store(&job.Progress{Permille: permille, Note: cut(note, abi.MaxProgressNote)})
}

// LastProgress is the latest report; nil if there was none. Any goroutine may ask.
func (a *Attempt) LastProgress() *job.Progress { return a.progress.Load() }
