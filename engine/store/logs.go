package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// Logs keeps the last lines of what handlers logged, per run: job.MaxLogLines and
// job.MaxLogBytes at most, the oldest dropped first. They live as long as the run.
type Logs interface {
	// SaveLogs keeps lines of attempts that go on; those of an attempt that ends
	// go with its settle. Lines of a claim that is not held any more are dropped,
	// and lines that are saved again are kept once.
	SaveLogs(ctx context.Context, batch []LogParams) error
	// ListLogs returns a run's lines in their order. An unknown run has none.
	ListLogs(ctx context.Context, p ListLogsParams) (ListLogsResult, error)
}

// LogParams are lines of one attempt: consecutive, their Seq counting the
// attempt's. Lines that are saved again begin with the same one or a later one.
type LogParams struct {
	Ref   job.Ref
	Lines []job.LogLine
}

// ListLogsParams names a run.
type ListLogsParams struct {
	Run   string
	After int64 // Seq: only later lines
}

// ListLogsResult are lines, and how many of the run's are not kept any more.
type ListLogsResult struct {
	Lines   []job.LogLine
	Dropped int64
}

// LogChunk is a row of a store's: lines that were saved at once. The functions on
// it are for stores.
type LogChunk struct {
	Claim   int64
	Attempt int
	Earlier int64 // lines of the claims before
	Data    []byte
}

// logLine is a line in the data of a chunk.
type logLine struct {
	N int64  `json:"n"`
	T int64  `json:"t"` // Unix milliseconds
	L string `json:"l"`
	S string `json:"s,omitempty"`
	M string `json:"m"`
}

// EncodeLog is the data of a chunk, and what its lines count.
func EncodeLog(lines []job.LogLine) (data []byte, size int) {
	out := make([]logLine, len(lines))
	for i := range lines {
		l := &lines[i]
		size += l.Size()
		out[i] = logLine{N: l.Seq, T: l.At.UnixMilli(), L: l.Level, S: l.Step, M: l.Text}
	}
	data, _ = json.Marshal(out) // texts and numbers always encode
	return data, size
}

// KeptLog are the lines of a run's chunks, which come in the order of claims and
// of their first lines.
func KeptLog(chunks []LogChunk, after int64) (out ListLogsResult, err error) {
	var all []job.LogLine
	var last int64
	for _, c := range chunks {
		var lines []logLine
		if err := json.Unmarshal(c.Data, &lines); err != nil {
			return ListLogsResult{}, err
		}
		for _, l := range lines {
			if seq := c.Earlier + l.N; seq > last {
				last = seq
				all = append(all, job.LogLine{Seq: seq, At: time.UnixMilli(l.T).UTC(), Attempt: c.Attempt, Level: l.L, Step: l.S, Text: l.M})
			}
		}
	}
	from, size := len(all), 0
	for from > 0 && len(all)-from < job.MaxLogLines {
		if size += all[from-1].Size(); size > job.MaxLogBytes {
			break
		}
		from--
	}
	out.Lines, out.Dropped = all[from:], last-int64(len(all)-from)
	for len(out.Lines) > 0 && out.Lines[0].Seq <= after {
		out.Lines = out.Lines[1:]
	}
	return out, nil
}
