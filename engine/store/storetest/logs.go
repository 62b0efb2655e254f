package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// lines are an attempt's from..to, as they are given to a store.
func (e *env) lines(from, to int64) (out []job.LogLine) {
	at := e.now().Truncate(time.Millisecond)
	for n := from; n <= to; n++ {
		out = append(out, job.LogLine{Seq: n, At: at, Level: job.LogInfo, Step: "s", Text: fmt.Sprint("line ", n)})
	}
	return out
}

func (e *env) saveLogs(batch ...store.LogParams) {
	e.Helper()
	if err := e.db.SaveLogs(e.ctx, batch); err != nil {
		e.Fatalf("save logs: %v", err)
	}
}

func (e *env) logs(run string, after int64) store.ListLogsResult {
	e.Helper()
	res, err := e.db.ListLogs(e.ctx, store.ListLogsParams{Run: run, After: after})
	if err != nil {
		e.Fatalf("logs of %s: %v", run, err)
	}
	return res
}

// wantLogs checks the places and attempts of a run's lines, as in "1:1 2:1 3:2".
func (e *env) wantLogs(run string, dropped int64, want string) {
	e.Helper()
	res := e.logs(run, 0)
	var got []string
	for _, l := range res.Lines {
		got = append(got, fmt.Sprintf("%d:%d", l.Seq, l.Attempt))
	}
	if s := strings.Join(got, " "); s != want || res.Dropped != dropped {
		e.Fatalf("kept %q and dropped %d, want %q and %d", s, res.Dropped, want, dropped)
	}
}

var logTests = []test{
	// (LG1)
	{"lines are kept with the end of their attempt, as they were", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		at := e.now().Truncate(time.Millisecond)
		given := []job.LogLine{
			{Seq: 1, At: at, Level: job.LogWarn, Text: "nul \x00 quote \" näme 🚀 <b> " + strings.Repeat("x", 8<<10)},
			{Seq: 2, At: at.Add(time.Second), Level: job.LogDebug, Step: "charge \\ card", Text: ""},
		}
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Ready, Log: given})
		for i := range given {
			given[i].Attempt = 1
		}
		if d := cmp.Diff(given, e.logs(r.ID, 0).Lines); d != "" {
			e.Fatal(d)
		}
		again := e.claimOne("w")
		e.settle(store.SettleParams{Ref: refOf(again), Outcome: job.Completed, To: job.Done, Output: []byte("1"), Log: e.lines(1, 2)})
		e.wantLogs(r.ID, 0, "1:1 2:1 3:2 4:2")
		if res := e.logs(r.ID, 3); len(res.Lines) != 1 || res.Lines[0].Seq != 4 || res.Lines[0].Text != "line 2" {
			e.Fatalf("after 3: %+v", res)
		}
		if res := e.logs(r.ID, 4); len(res.Lines) != 0 {
			e.Fatalf("after 4: %+v", res)
		}
	}},
	{"lines of an attempt that goes on are kept, and once", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.saveLogs(store.LogParams{Ref: refOf(r), Lines: e.lines(1, 2)})
		e.wantLogs(r.ID, 0, "1:1 2:1")
		// The answer was lost, and more lines have come.
		e.saveLogs(store.LogParams{Ref: refOf(r), Lines: e.lines(1, 3)})
		e.saveLogs(store.LogParams{Ref: refOf(r), Lines: e.lines(2, 4)}, store.LogParams{Ref: refOf(r), Lines: e.lines(2, 5)})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.DeadLettered, To: job.Dead, Log: e.lines(4, 6)})
		e.wantLogs(r.ID, 0, "1:1 2:1 3:1 4:1 5:1 6:1")
	}},
	{"only the worker and ordinal of the claim may log", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		for _, ref := range []job.Ref{{RunID: r.ID, Worker: "other", Claim: 1}, {RunID: r.ID, Worker: "w", Claim: 2}, {RunID: "no id", Worker: "w", Claim: 1}} {
			e.saveLogs(store.LogParams{Ref: ref, Lines: e.lines(1, 1)})
			e.settle(store.SettleParams{Ref: ref, Outcome: job.Completed, To: job.Done, Log: e.lines(1, 1)})
		}
		p := store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Log: e.lines(1, 1)}
		e.settle(p)
		p.Log = e.lines(2, 2)
		e.settle(p) // again
		e.saveLogs(store.LogParams{Ref: refOf(r), Lines: e.lines(3, 3)})
		e.wantLogs(r.ID, 0, "1:1")
	}},
	// (LG2)
	{"of many lines the last are kept, and the others counted", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		for n := int64(1); n <= 60; n++ {
			e.saveLogs(store.LogParams{Ref: refOf(r), Lines: e.lines(10*n-9, 10*n)})
		}
		res := e.logs(r.ID, 0)
		if len(res.Lines) != job.MaxLogLines || res.Lines[0].Seq != 401 || res.Dropped != 400 {
			e.Fatalf("kept %d lines from %d on, dropped %d", len(res.Lines), res.Lines[0].Seq, res.Dropped)
		}
		// Another attempt's push them out.
		e.finish(r, job.Retried, job.Ready)
		again := e.claimOne("w")
		long := e.lines(91, 94) // 90 were dropped by who logged them
		for i := range long {
			long[i].Text = strings.Repeat("x", job.MaxLogBytes/4)
		}
		e.settle(store.SettleParams{Ref: refOf(again), Outcome: job.Completed, To: job.Done, Output: []byte("1"), Log: long})
		e.wantLogs(r.ID, 691, "692:2 693:2 694:2") // each is a little more than a quarter
	}},
	{"lines are counted on after those of the claims before are all pushed out", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Ready, Log: e.lines(1, 6)})
		again := e.claimOne("w")
		long := e.lines(1, 1)
		long[0].Text = strings.Repeat("x", job.MaxLogBytes)
		e.saveLogs(store.LogParams{Ref: refOf(again), Lines: long})
		e.wantLogs(r.ID, 7, "")
		e.saveLogs(store.LogParams{Ref: refOf(again), Lines: e.lines(2, 3)})
		e.wantLogs(r.ID, 7, "8:2 9:2")
		e.settle(store.SettleParams{Ref: refOf(again), Outcome: job.Completed, To: job.Done, Output: []byte("1"), Log: e.lines(4, 4)})
		e.wantLogs(r.ID, 7, "8:2 9:2 10:2")
	}},
	{"lines go with their run", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Retention: time.Second, Log: e.lines(1, 3)})
		e.db.Advance(time.Minute)
		if n, err := e.db.Purge(e.ctx, 10); n != 1 || err != nil {
			e.Fatal(n, err)
		}
		e.wantLogs(r.ID, 0, "")
		r = e.start("w2", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Log: e.lines(1, 3)})
		if _, err := e.db.Delete(e.ctx, store.DeleteParams{ID: r.ID}); err != nil {
			e.Fatal(err)
		}
		e.wantLogs(r.ID, 0, "")
	}},
}
