package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// logged is what a claim has sent of its lines, whether it arrived or not.
type logged struct{ first, last int64 }

// someLines are the next of a claim's lines; sometimes some that were sent before,
// as after a lost answer, and sometimes after some that its worker dropped.
func (x *random) someLines(ref job.Ref) (out []job.LogLine) {
	was := x.logged[ref]
	first := was.last + 1
	switch {
	case was.last > 0 && x.odds(4):
		first = was.first
	case was.last > 0 && x.odds(6):
		first = was.first + x.rand.Int64N(was.last-was.first+2)
	case x.odds(8):
		first += x.rand.Int64N(90)
	}
	n := 1 + x.rand.Int64N(4)
	if x.odds(4) {
		n = x.rand.Int64N(130)
	}
	last := max(was.last, first-1+n, first)
	x.logged[ref] = logged{first, last}
	for seq := first; seq <= last; seq++ {
		// The same again when it is sent again.
		l := job.LogLine{Seq: seq, At: time.UnixMilli(1_900_000_000_000 + ref.Claim*1_000_000 + seq).UTC(), Level: job.LogInfo, Text: fmt.Sprintf("line %d of claim %d", seq, ref.Claim)}
		if seq%3 == 0 {
			l.Level, l.Step = job.LogWarn, "a"
		}
		if seq%5 == 0 {
			l.Text += strings.Repeat("é\x00", int(seq%11)*300)
		}
		out = append(out, l)
	}
	return out
}

func (x *random) logSome() {
	var batch []store.LogParams
	for range 1 + x.rand.IntN(3) {
		ref := x.anyRef()
		batch = append(batch, store.LogParams{Ref: ref, Lines: x.someLines(ref)})
	}
	if err := x.db.SaveLogs(x.ctx, batch); err != nil {
		x.Fatal(err)
	}
	for _, p := range batch {
		if r := x.m.held(p.Ref); r != nil {
			x.m.log(r, p.Ref.Claim, p.Lines)
		}
	}
	for _, p := range batch {
		x.sameLog(p.Ref.RunID)
	}
}

// sameLog compares a run's lines. Chunks of which one has lines of another count
// them twice against what is kept, so of those there may be fewer.
func (x *random) sameLog(run string) {
	x.Helper()
	var want store.ListLogsResult
	overlaps := false
	if r := x.m.runs[run]; r != nil {
		want, overlaps = r.log.listed(), r.log.overlaps
		if len(want.Lines) < len(r.log.lines) {
			x.pushedOut++
		}
	}
	after := int64(0)
	if x.odds(3) {
		after = x.rand.Int64N(want.Dropped + int64(len(want.Lines)) + 2)
	}
	got := x.logs(run, after)
	if overlaps && got.Dropped > want.Dropped {
		want.Lines = want.Lines[min(int64(len(want.Lines)), got.Dropped-want.Dropped):]
		want.Dropped = got.Dropped
	}
	for len(want.Lines) > 0 && want.Lines[0].Seq <= after {
		want.Lines = want.Lines[1:]
	}
	x.same(want, got)
}
