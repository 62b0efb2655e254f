package worker_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/sqlite"
	"github.com/jobrunner/runner/engine/worker"
)

// forFive is a job of five minutes.
var forFive = handlers{"j": func(t *task) (any, error) { t.Work(5 * time.Minute); return nil, nil }}

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

func TestClocksThatDisagreeLoseNothing(t *testing.T) {
	for _, skew := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, forFive, nil)
			db, err := sqlite.Open(t.Context(), sqlite.Config{
				Path: sqlite.Memory, Create: true, Clock: func() time.Time { return time.Now().Add(skew) },
			})
			r.must(err)
			defer db.Close()
			r.db.Store = db
			w := r.work(nil)
			r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
			r.logged("jobs.lease.lost", 0)
			w.Stop()
		})
	}
}

func TestAWorkerWhoseRowIsGoneStartsOverUnderANewID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, forFive, nil)
		r.work(nil)
		id := r.enqueue("j")
		first := r.reaches(id, job.Running).Worker
		r.must(r.db.Store.Deregister(t.Context(), first)) // as an operator would
		run := r.reaches(id, job.Running)
		for run.Worker == first {
			run = r.reaches(id, job.Running)
		}
		r.ended(r.settles(id), job.Done, "", 1)
		r.logged("jobs.lease.lost", 1)
	})
}

func TestRegisteringAgainOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, nil)
		var away atomic.Bool
		r.db.Between = func(_ context.Context, _ string, call func() error) error {
			if away.Load() {
				return enginetest.Away()
			}
			return call()
		}
		w := r.work(nil)
		time.Sleep(time.Minute)
		if !w.Leased() {
			t.Error("a worker that is registered holds no lease")
		}
		away.Store(true)
		time.Sleep(10 * time.Minute)
		if w.Leased() {
			t.Error("a worker that could not renew for ten minutes holds a lease")
		}
		away.Store(false)
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
		if !w.Leased() {
			t.Error("a worker that works holds no lease")
		}
		if n := r.events.Count("jobs.worker.register-failed"); n == 0 || n > 10 {
			t.Errorf("%d log lines for one outage", n)
		}
	})
}

func TestACancelledRunStopsAtTheNextRenewalAndStaysCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type end struct {
			at  time.Time
			err error
		}
		ends := make(chan end, 1)
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			<-t.Context.Done()
			// A handler that does not care goes on, and its step is refused.
			_, err := t.Calls.StepBegin(t.Context, "after", abi.StepOnce)
			ends <- end{time.Now(), err}
			return "done", nil
		}}, nil)
		r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		_, err := r.db.Cancel(t.Context(), store.CancelParams{ID: id, Reason: "enough"})
		r.must(err)
		cancelled := time.Now()
		time.Sleep(time.Minute)
		stopped := <-ends
		if wait := stopped.at.Sub(cancelled); wait <= 0 || wait > 11*time.Second {
			t.Errorf("stopped %v after the cancel, want at the next renewal", wait)
		}
		if abi.CodeOf(stopped.err) != job.CodeCancelled {
			t.Errorf("the step answered %v", stopped.err)
		}
		run := r.get(id)
		if run.State != job.Cancelled || run.Error.Message != "enough" || run.Steps != 0 || run.Output != nil {
			t.Errorf("the run is %+v", run)
		}
		r.logged("jobs.lease.lost", 0)
		r.logged("jobs.settle.unowned", 0)
	})
}

func TestACancelThatThisProcessMadeIsHeardAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, forFive, nil)
		w := r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		_, err := r.queue.Cancel(t.Context(), store.CancelParams{ID: id})
		r.must(err)
		w.Cancelled(id)
		synctest.Wait()
		if n := r.guest.Running(); n != 0 {
			t.Errorf("%d attempts still run", n)
		}
	})
}

func TestAStalledWorkersWritesMissAndItsSuccessorsLand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		stale := make(chan error, 1)
		var fresh atomic.Int64
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			if t.Attempt.Meta.Attempt == 1 {
				<-wake // a process that was paused: it does not notice that time passes
				_, err := t.Calls.StepBegin(context.Background(), "one", 0)
				if err == nil {
					_, err = t.Calls.StepEnd(context.Background(), []byte(`"stale"`))
				}
				stale <- err
				return "stale", nil
			}
			fresh.Add(1)
			_, err := t.Step("one", func() (any, error) { return "fresh", nil })
			return "fresh", err
		}}, nil)
		first := r.view()
		var stalled atomic.Bool
		first.Between = func(ctx context.Context, op string, call func() error) error {
			if stalled.Load() && (op == "Renew" || op == "Register" || op == "Claim" || op == "Reclaim") {
				return hang(ctx)
			}
			return call()
		}
		w1 := r.work(r.through(first))
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		stalled.Store(true)
		r.work(r.through(r.view()))
		run := r.settles(id)
		close(wake)
		time.Sleep(time.Second)
		after := r.get(id)
		r.ended(after, job.Done, "", 2)
		if string(after.Output) != `"fresh"` || fresh.Load() != 1 || !after.FinishedAt.Equal(run.FinishedAt) {
			t.Errorf("output %s after %d fresh bodies", after.Output, fresh.Load())
		}
		if err := <-stale; abi.CodeOf(err) != job.CodeLeaseLost {
			t.Errorf("the stale step answered %v", err)
		}
		steps, err := r.db.ListSteps(t.Context(), id)
		if err != nil || len(steps) != 1 || string(steps[0].Output) != `"fresh"` {
			t.Errorf("steps %+v, %v", steps, err)
		}
		stalled.Store(false)
		w1.Stop()
	})
}

func TestASessionThatRetiresOutlivesItsSuccessorsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, forFive, nil)
		var lose atomic.Bool
		r.db.Between = onOp("Claim", func(_ context.Context, call func() error) error {
			if lose.Swap(false) {
				return enginetest.Lost(call)
			}
			return call()
		})
		r.work(func(c *worker.Config) { c.Alone = true })
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		lose.Store(true)
		r.ended(r.settles(id), job.Done, "", 1)
		r.logged("jobs.worker.session-retired", 1)
		r.logged("jobs.lease.lost", 0)
	})
}

// A start that was overtaken by a stop and another start leaves the other's
// worker alone, however its registration ends.
func TestAStartThatWasOvertakenDisturbsNoOther(t *testing.T) {
	for _, fails := range []bool{true, false} {
		t.Run(map[bool]string{true: "fails", false: "lands"}[fails], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, forFive, nil)
				var calls atomic.Int64
				r.db.Between = onOp("Register", func(_ context.Context, call func() error) error {
					if calls.Add(1) > 1 {
						return call()
					}
					time.Sleep(time.Minute) // heeds no context
					if fails {
						return enginetest.Away()
					}
					return call()
				})
				w := r.idle(nil)
				first := make(chan error, 1)
				go func() { first <- w.Start(t.Context()) }()
				synctest.Wait()
				w.Stop()
				r.must(w.Start(t.Context()))
				if err := <-first; err == nil {
					t.Error("a start that was overtaken says that it has begun")
				}
				time.Sleep(10 * time.Second) // the loop polls rarely by now
				if !w.Leased() {
					t.Fatal("the second start's worker was stopped by the first")
				}
				enqueued := time.Now()
				id := r.enqueue("j")
				r.reaches(id, job.Running)
				if late := r.get(id).ClaimedAt.Sub(enqueued); late > 100*time.Millisecond {
					t.Errorf("a wake was heard after %v: the loop listens elsewhere", late)
				}
			})
		})
	}
}

// A registration that lands when the worker has been shut is taken back, be it
// the first of a lifetime or one that replaces a lost session: no heartbeat may
// keep alive a row behind which nobody works.
func TestARegistrationThatLandsAfterTheStopIsTakenBack(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(map[bool]string{true: "first", false: "replacement"}[first], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, forFive, nil)
				var slow, away atomic.Bool
				slow.Store(first)
				r.db.Between = func(ctx context.Context, op string, call func() error) error {
					switch {
					case op == "Register" && slow.Load():
						err := call()
						time.Sleep(time.Minute) // heeds no context
						return err
					case op == "Renew" && away.Load():
						return enginetest.Away()
					}
					return call()
				}
				w := r.idle(nil)
				started := make(chan error, 1)
				go func() { started <- w.Start(t.Context()) }()
				if first {
					synctest.Wait()
				} else {
					if err := <-started; err != nil {
						t.Fatal(err)
					}
					slow.Store(true)
					away.Store(true)
					time.Sleep(45 * time.Second) // the lease is lost, and the next registration under way
				}
				w.Stop()
				if first {
					var e *abi.Error
					if err := <-started; !errors.As(err, &e) || e.Code != job.CodeDraining {
						t.Errorf("Start answered %v, want X_DRAINING", err)
					}
				}
				away.Store(false)
				time.Sleep(2 * time.Minute)
				rows, err := r.db.ListWorkers(t.Context())
				if err != nil || slices.ContainsFunc(rows, func(row store.Worker) bool { return row.ExpiresAt.After(time.Now()) }) {
					t.Errorf("workers %+v, %v; want none alive", rows, err)
				}
				if w.Leased() {
					t.Error("a stopped worker is leased")
				}
			})
		})
	}
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
