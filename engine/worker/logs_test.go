package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func (r *rig) logs(id string) (texts []string) {
	r.Helper()
	res, err := r.db.Store.ListLogs(r.Context(), store.ListLogsParams{Run: id})
	r.must(err)
	for _, l := range res.Lines {
		texts = append(texts, fmt.Sprintf("%d#%d %s", l.Seq, l.Attempt, l.Text))
	}
	return texts
}

func (r *rig) wantLogs(id string, want ...string) {
	r.Helper()
	if got := r.logs(id); fmt.Sprint(got) != fmt.Sprint(want) {
		r.Errorf("kept %q, want %q", got, want)
	}
}

// (LG1, LG3)
func TestLinesAreKeptWithTheEndAndWhileAnAttemptGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		say := func(t *task, text string) { t.Calls.Log(t.Context, abi.LevelInfo, text) }
		r := newRig(t, handlers{
			"j": func(t *task) (any, error) {
				say(t, "begun")
				t.Work(time.Minute)
				say(t, "worked")
				if t.Attempt.Meta.Attempt == 1 {
					return nil, errors.New("no")
				}
				return nil, nil
			},
			"silent": func(t *task) (any, error) { t.Work(time.Minute); return nil, nil },
		}, nil)
		// The first save is lost, the second is done and its answer lost.
		var saves atomic.Int32
		r.db.Between = onOp("SaveLogs", func(_ context.Context, call func() error) error {
			switch saves.Add(1) {
			case 1:
				return enginetest.Away()
			case 2:
				return enginetest.Lost(call)
			}
			return call()
		})
		r.work(nil)
		id, silent := r.enqueue("j"), r.enqueue("silent")
		r.reaches(id, job.Running)
		time.Sleep(11 * time.Second)
		r.wantLogs(id)
		time.Sleep(10 * time.Second)
		r.wantLogs(id, "1#1 begun")
		time.Sleep(30 * time.Second)
		if n := saves.Load(); n != 3 {
			t.Errorf("%d saves of one line that was lost, unsure and saved", n)
		}
		r.settles(silent)
		r.settles(id)
		r.wantLogs(id, "1#1 begun", "2#1 worked", "3#2 begun", "4#2 worked")
		r.wantLogs(silent)
	})
}
