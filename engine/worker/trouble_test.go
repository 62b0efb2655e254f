package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

func TestTroubleIsWhatKeepsAWorkerFromWriting(t *testing.T) {
	full := &abi.Error{Code: job.CodeDatabaseFull, Message: "no space"}
	for _, op := range []string{"Renew", "Claim"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, forFive, nil)
				var fails atomic.Bool
				r.db.Between = onOp(op, func(_ context.Context, call func() error) error {
					if fails.Load() {
						return full
					}
					return call()
				})
				w := r.work(nil)
				if err := w.Trouble(); err != nil {
					t.Error(err)
				}
				fails.Store(true)
				time.Sleep(11 * time.Second)
				if err := w.Trouble(); abi.CodeOf(err) != job.CodeDatabaseFull {
					t.Errorf("while %s fails: %v", op, err)
				}
				fails.Store(false)
				time.Sleep(11 * time.Second)
				if err := w.Trouble(); err != nil {
					t.Errorf("%s works again: %v", op, err)
				}
				r.logged("jobs.worker.recovered", map[string]int{"Renew": 1}[op])
			})
		})
	}
}

// A full disk refuses the rows of an end where a renewal, which changes a row in
// place, still finds room.
func TestTroubleIsAlsoWhatRecordsWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, nil)
		var full atomic.Bool
		full.Store(true)
		r.db.Between = onOp("Settle", func(_ context.Context, call func() error) error {
			if full.Load() {
				return &abi.Error{Code: job.CodeDatabaseFull, Message: "no space"}
			}
			return call()
		})
		w := r.work(nil)
		id := r.enqueue("j")
		time.Sleep(10 * time.Second)
		if err := w.Trouble(); abi.CodeOf(err) != job.CodeDatabaseFull {
			t.Errorf("while no end can be written: %v", err)
		}
		full.Store(false)
		r.settles(id)
		synctest.Wait()
		if err := w.Trouble(); err != nil {
			t.Errorf("the end is written: %v", err)
		}
		r.logged("jobs.record.recovered", 1)
		r.logged("jobs.worker.settle-failed", 0)
	})
}
