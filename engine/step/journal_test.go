package step_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

func TestLinesOfCoveredGroundAreDropped(t *testing.T) {
	r := newRig(t)
	var out bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&out, nil))
	a := r.begin("w1")
	a.Log(a.ctx, abi.LevelInfo, "before one")
	a.do("one", `1`)
	if _, err := a.StepBegin(a.ctx, "two", 0); err != nil {
		t.Fatal(err)
	}
	a.Log(a.ctx, abi.LevelWarn, "inside two")
	a.Log(a.ctx, abi.LevelDebug, "too quiet")
	first := out.String()
	for _, want := range []string{"level=INFO msg=jobs.handler.log line=\"before one\"", "level=WARN msg=jobs.handler.log line=\"inside two\"", "run=" + r.runID, "job=parent", "attempt=1", "step=two"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q lacks %q", first, want)
		}
	}
	out.Reset()
	b := a.again(nil)
	b.Log(b.ctx, abi.LevelInfo, "before one")
	b.replay("one", `1`)
	b.Log(b.ctx, abi.LevelInfo, "after one")
	if got := out.String(); strings.Contains(got, "before one") || !strings.Contains(got, "after one") || !strings.Contains(got, "attempt=2") {
		t.Errorf("the second attempt wrote %q", got)
	}
}

// A handler that logs without end writes no more than one that logs a lot, short
// lines or long ones; what is not written does not count.
func TestAnAttemptLogsSoMuchAndNoMore(t *testing.T) {
	for _, line := range []string{"", strings.Repeat("x", 1000), strings.Repeat("x", 2*abi.MaxLogLine)} {
		r := newRig(t)
		var out bytes.Buffer
		r.log = slog.New(slog.NewTextHandler(&out, nil))
		a := r.begin("w1")
		a.do("one", `1`)
		for range 2 * abi.MaxLog / abi.LogLineCost {
			a.Log(a.ctx, abi.LevelDebug, line)
			a.Log(a.ctx, abi.LevelInfo, line)
		}
		if n := strings.Count(out.String(), "log truncated"); n != 1 || out.Len() < abi.MaxLog/2 || out.Len() > 2*abi.MaxLog {
			t.Errorf("lines of %d bytes: %d bytes are written, and %d times that there are more", len(line), out.Len(), n)
		}

		out.Reset()
		b := a.again(nil)
		for range 2 * abi.MaxLog / abi.LogLineCost {
			b.Log(b.ctx, abi.LevelInfo, line) // covered ground
		}
		b.replay("one", `1`)
		b.Log(b.ctx, abi.LevelInfo, "the next attempt logs again")
		if !strings.Contains(out.String(), "the next attempt logs again") {
			t.Error("the next attempt logs nothing")
		}
	}
}

func TestProgressKeepsTheLatestUsableReport(t *testing.T) {
	a := newRig(t).begin("w1")
	if a.LastProgress() != nil {
		t.Error("progress without a report")
	}
	a.Progress(a.ctx, 100, "a tenth")
	a.Progress(a.ctx, 500, strings.Repeat("é", 200))
	a.Progress(a.ctx, 1001, "no share")
	a.Progress(a.ctx, -1, "no share")
	p := a.LastProgress()
	if p == nil || p.Permille != 500 || len(p.Note) > abi.MaxProgressNote || !strings.HasPrefix(p.Note, "éé") {
		t.Errorf("progress is %+v", p)
	}
}

// (LG2, LG3)
func TestTheLastLinesOfAnAttemptAreKept(t *testing.T) {
	r := newRig(t)
	r.log = slog.New(slog.DiscardHandler) // of a process that logs nothing
	a := r.begin("w1")
	if got := a.UnsavedLog(); got != nil {
		t.Fatalf("nothing was logged, and kept is %+v", got)
	}
	a.Log(a.ctx, abi.LevelDebug, "quiet")
	a.Log(a.ctx, abi.LevelWarn, "before")
	if _, err := a.StepBegin(a.ctx, "one", 0); err != nil {
		t.Fatal(err)
	}
	for range 3 * job.MaxLogLines {
		a.Log(a.ctx, abi.LevelInfo, "inside")
	}
	got := a.UnsavedLog()
	if len(got) != job.MaxLogLines || got[0].Seq != 2*job.MaxLogLines+2 || got[0].Step != "one" || got[0].Level != job.LogInfo || got[0].At.IsZero() {
		t.Fatalf("kept %d lines, the first %+v", len(got), got[0])
	}
	a.LogSaved(got[len(got)-2].Seq)
	if left := a.UnsavedLog(); len(left) != 1 || left[0].Seq != 3*job.MaxLogLines+1 {
		t.Fatalf("after a save there is %+v", left)
	}
	a.LogSaved(left(a))
	for range job.MaxLogBytes/abi.MaxLogLine + 3 {
		a.Log(a.ctx, abi.LevelError, strings.Repeat("x", 2*abi.MaxLogLine))
	}
	size := 0
	for _, l := range a.UnsavedLog() {
		size += l.Size()
	}
	if size > job.MaxLogBytes || size < job.MaxLogBytes-abi.MaxLogLine-10 {
		t.Errorf("kept %d bytes", size)
	}
}

// left is the place of the latest line.
func left(a *attempt) int64 {
	lines := a.UnsavedLog()
	return lines[len(lines)-1].Seq
}
