package storetest

import (
	"slices"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// modelLog is what a run ever logged: every line that arrived while its claim was
// held, of which the last are to be kept.
type modelLog struct {
	lines    []job.LogLine // Seq counts the run's
	earlier  int64         // of the claims before
	claim    int64         // that logged last
	first    int64         // of its last save
	last     int64         // of its lines, counted by the attempt
	overlaps bool
}

// log keeps lines of a claim that is held.
func (m *model) log(r *modelRun, claim int64, lines []job.LogLine) {
	if len(lines) == 0 {
		return
	}
	l := &r.log
	if l.claim != claim {
		l.earlier, l.claim, l.last = l.earlier+l.last, claim, 0
	}
	for _, line := range lines {
		if line.Seq <= l.last {
			l.overlaps = l.overlaps || lines[0].Seq != l.first
			continue // saved again
		}
		l.last = line.Seq
		line.Seq, line.Attempt = l.earlier+line.Seq, r.Attempt
		l.lines = append(l.lines, line)
	}
	l.first = lines[0].Seq
}

// listed is what there is to list: the last lines of the run, and how many more
// there were.
func (l *modelLog) listed() store.ListLogsResult {
	from, size := len(l.lines), 0
	for from > 0 && len(l.lines)-from < job.MaxLogLines {
		if size += l.lines[from-1].Size(); size > job.MaxLogBytes {
			break
		}
		from--
	}
	kept := slices.Clone(l.lines[from:])
	return store.ListLogsResult{Lines: kept, Dropped: l.earlier + l.last - int64(len(kept))}
}
