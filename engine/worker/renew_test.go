package worker_test

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/worker"
)

func TestOneFailedRenewalIsAWarningAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, forFive, nil)
		var fail atomic.Bool
		fail.Store(true)
		r.db.Between = onOp("Renew", func(_ context.Context, call func() error) error {
			if fail.Load() {
				fail.Store(false)
				return enginetest.Away()
			}
			return call()
		})
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
		r.logged("jobs.heartbeat.failed", 1)
		r.logged("jobs.lease.lost", 0)
	})
}

func TestAWorkerThatCannotRenewForAWholeLeaseGivesUpItsRunsOnce(t *testing.T) {
	for name, cut := range map[string]func(ctx context.Context) error{
		"errors": func(context.Context) error { return enginetest.Away() },
		"hangs":  hang,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, forFive, nil)
				var away atomic.Bool
				r.db.Between = onOp("Renew", func(ctx context.Context, call func() error) error {
					if away.Load() {
						return cut(ctx)
					}
					return call()
				})
				r.work(nil)
				id := r.enqueue("j")
				r.reaches(id, job.Running)
				first := r.get(id).Worker
				away.Store(true)
				time.Sleep(45 * time.Second)
				away.Store(false)
				r.logged("jobs.lease.lost", 1)
				run := r.settles(id)
				r.ended(run, job.Done, "", 2)
				if run.Orphans != 0 || run.Claims != 2 {
					t.Errorf("orphans %d, claims %d", run.Orphans, run.Claims)
				}
				records, err := r.db.Attempts(t.Context(), id)
				if err != nil || len(records) != 2 || records[0].Outcome != job.Orphaned || records[1].Worker == first {
					t.Errorf("timeline %+v, %v; want the second attempt under a new worker id", records, err)
				}
				r.logged("jobs.settle.unowned", 0) // nothing was written of the lost attempt
			})
		})
	}
}

func TestARenewalThatNeverComesBackIsALossOnceAndIgnoredAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, forFive, nil)
		var stuck atomic.Bool
		stuck.Store(true)
		r.db.Between = onOp("Renew", func(_ context.Context, call func() error) error {
			if stuck.Load() {
				stuck.Store(false)
				time.Sleep(10 * time.Minute) // heeds no context
			}
			return call()
		})
		r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		time.Sleep(31 * time.Second)
		r.logged("jobs.lease.lost", 1)
		r.ended(r.settles(id), job.Done, "", 2)
		time.Sleep(15 * time.Minute)
		r.logged("jobs.lease.lost", 1)
	})
}

func TestARenewalThatLandsTooLateIsALossAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, forFive, nil)
		var slow atomic.Bool
		slow.Store(true)
		r.db.Between = onOp("Renew", func(_ context.Context, call func() error) error {
			if slow.Load() {
				slow.Store(false)
				err := call()
				time.Sleep(21 * time.Second) // 31s since the start of the last one that landed
				return err
			}
			return call()
		})
		r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		time.Sleep(35 * time.Second)
		r.logged("jobs.lease.lost", 1)
		r.settles(id)
	})
}

func TestARenewalOnTheWireWhileARunSettlesIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) { t.Work(10100 * time.Millisecond); return nil, nil }}, nil)
		r.db.Between = onOp("Renew", func(_ context.Context, call func() error) error {
			time.Sleep(500 * time.Millisecond) // the run ends meanwhile, so it is answered as lost
			return call()
		})
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
		time.Sleep(time.Minute)
		r.logged("jobs.lease.lost", 0)
	})
}

func TestARunWhoseSettleIsNotAnsweredYetIsNoLossEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) { t.Work(10100 * time.Millisecond); return nil, nil }}, nil)
		r.db.Between = func(_ context.Context, op string, call func() error) error {
			if op == "Renew" {
				time.Sleep(500 * time.Millisecond)
			}
			err := call()
			if op == "Settle" {
				time.Sleep(2 * time.Second)
			}
			return err
		}
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
		time.Sleep(time.Minute)
		r.logged("jobs.lease.lost", 0)
		r.logged("jobs.attempt.settled", 1)
	})
}

func TestProgressIsSeenWhileTheRunRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			t.Calls.Progress(t.Context, 100, "begun")
			t.Work(25 * time.Second)
			t.Calls.Progress(t.Context, 900, "almost")
			t.Work(25 * time.Second)
			return nil, nil
		}}, nil)
		var carried atomic.Int32
		r.db.Between = onOp("Renew", func(_ context.Context, call func() error) error {
			err := call()
			if carried.Add(1) == 1 {
				return enginetest.Away() // it landed, and nobody knows: it is said again
			}
			return err
		})
		r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		if p := r.get(id).Progress; p != (job.Progress{}) {
			t.Errorf("before any renewal: %+v", p)
		}
		time.Sleep(11 * time.Second)
		if p := r.get(id).Progress; p != (job.Progress{Permille: 100, Note: "begun"}) {
			t.Errorf("after one renewal: %+v", p)
		}
		time.Sleep(25 * time.Second)
		if p := r.get(id).Progress; p != (job.Progress{Permille: 900, Note: "almost"}) {
			t.Errorf("after some renewals: %+v", p)
		}
		r.ended(r.settles(id), job.Done, "", 1)
	})
}

func TestARenewalTellsProgressAndQueuesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			t.Calls.Progress(t.Context, 1, "")
			t.Work(2 * time.Minute)
			return nil, nil
		}}, nil)
		told := &renewals{Store: r.db}
		w := r.work(func(c *worker.Config) { c.Store = told })
		r.reaches(r.enqueue("j"), job.Running)
		time.Sleep(time.Minute)
		if queues, progress := told.extras(); queues != 0 || progress != 1 {
			t.Errorf("%d renewals told queues, %d progress; want 0 and 1", queues, progress)
		}
		m := *r.deploy.Manifest()
		m.Queues = maps.Clone(m.Queues)
		m.Queues["mail"] = manifest.Queue{Name: "mail", Workers: 1}
		w.Configure(&m)
		time.Sleep(time.Minute)
		if queues, _ := told.extras(); queues != 1 {
			t.Errorf("%d renewals told queues after a reload, want 1", queues)
		}
		workers, err := r.db.ListWorkers(t.Context())
		if err != nil || len(workers) != 1 || !slices.Contains(workers[0].Queues, "mail") {
			t.Errorf("after a reload the worker serves %+v, %v", workers, err)
		}
	})
}

// renewals counts what renewals carry.
type renewals struct {
	worker.Store
	queues, progress atomic.Int32
}

func (r *renewals) Renew(ctx context.Context, p store.RenewParams) (store.RenewResult, error) {
	if p.Queues != nil {
		r.queues.Add(1)
	}
	r.progress.Add(int32(len(p.Progress)))
	return r.Store.Renew(ctx, p)
}

func (r *renewals) extras() (queues, progress int32) { return r.queues.Load(), r.progress.Load() }
