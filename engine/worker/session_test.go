package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/sqlite"
	"github.com/jobrunner/runner/engine/worker"
)

// forFive is a job of five minutes.
var forFive = handlers{"j": func(t *task) (any, error) { t.Work(5 * time.Minute); return nil, nil }}

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
