package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
)

type jsonRaw = json.RawMessage

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// once is a policy that a counted interruption would kill.
var once = policy(func(p *job.RetryPolicy) { p.Attempts = 1 })

func lasts(d time.Duration) handlers {
	return handlers{"j": func(t *task) (any, error) { t.Work(d); return "done", nil }}
}

func TestADrainLetsAnAttemptFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lasts(5*time.Second), once)
		w := r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		began := time.Now()
		w.Drain(25 * time.Second)
		r.ended(r.get(id), job.Done, "", 1)
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the drain took %v", took)
		}
		r.logged("jobs.worker.draining", 1)
		r.logged("jobs.worker.drain-signalled", 0)
	})
}

func TestADrainThatCannotWaitInterruptsUncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lasts(time.Minute), once)
		w := r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		began := time.Now()
		w.Drain(4 * time.Second)
		if took := time.Since(began); took < 1900*time.Millisecond || took > 2200*time.Millisecond {
			t.Errorf("aborted after %v, want with about 2s left of 4", took)
		}
		r.ended(r.get(id), job.Ready, job.CodeDraining, 0)
		r.logged("jobs.attempt.interrupted", 1)
		if all, err := r.db.ListWorkers(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("workers left: %v, %v", all, err)
		}
		r.work(nil)
		r.ended(r.settles(id), job.Done, job.CodeDraining, 1)
	})
}

func TestAnInterruptedHandlersOwnErrorIsNotItsVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			<-t.Context.Done()
			return nil, enginetest.Terminal("X_KILLED", "my child process was killed")
		}}, once)
		w := r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		w.Drain(4 * time.Second)
		r.ended(r.get(id), job.Ready, job.CodeDraining, 0)
	})
}

func TestWhatAnAttemptReachedDuringADrainIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		handler enginetest.Handler
		state   job.State
		attempt int
	}{
		"returned": {func(t *task) (any, error) { <-t.Context.Done(); return 1, nil }, job.Done, 1},
		"asleep": {func(t *task) (any, error) {
			t.Work(time.Second)
			return nil, t.Sleep("nap", time.Hour)
		}, job.Suspended, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, handlers{"j": c.handler}, once)
				w := r.work(nil)
				id := r.enqueue("j")
				r.reaches(id, job.Running)
				w.Drain(4 * time.Second)
				run := r.get(id)
				if run.State != c.state || run.Attempt != c.attempt {
					t.Errorf("the run is %s at attempt %d", run.State, run.Attempt)
				}
			})
		})
	}
}

func TestAGuestThatDoesNotStopIsHandedBackBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan error, 1)
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			t.Deaf(time.Minute)
			_, err := t.Calls.StepBegin(context.Background(), "late", abi.StepOnce)
			late <- err
			return "done", nil
		}}, once)
		w := r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		began := time.Now()
		w.Drain(10 * time.Second)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the drain took %v of 10s", took)
		}
		r.ended(r.get(id), job.Ready, job.CodeDraining, 0)
		r.logged("jobs.timeout.abandoned", 1)
		time.Sleep(2 * time.Minute)
		if err := <-late; abi.CodeOf(err) != job.CodeLeaseLost {
			t.Errorf("the late write answered %v", err)
		}
		r.ended(r.get(id), job.Ready, job.CodeDraining, 0)
	})
}

func TestARunClaimedWhileADrainBeganIsHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lasts(time.Minute), once)
		inside, gate := make(chan struct{}), make(chan struct{})
		first := true
		r.db.Between = onOp("Claim", func(_ context.Context, call func() error) error {
			err := call()
			if first {
				first = false
				close(inside)
				<-gate
			}
			return err
		})
		id := r.enqueue("j")
		w := r.work(nil)
		<-inside
		go func() {
			time.Sleep(time.Second)
			close(gate)
		}()
		w.Drain(25 * time.Second)
		r.ended(r.get(id), job.Ready, "", 0)
		if r.guest.Started() != 0 {
			t.Error("it began")
		}
	})
}

func TestAFinishWaitsAsLongAsJobsTakeUntilADrainBoundsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lasts(9*time.Minute), once)
		w := r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		done := make(chan struct{})
		go func() { w.Finish(); close(done) }()
		time.Sleep(3 * time.Minute)
		select {
		case <-done:
			t.Fatal("Finish did not wait")
		default:
		}
		began := time.Now()
		w.Drain(4 * time.Second)
		<-done
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the shared end took %v", took)
		}
		r.ended(r.get(id), job.Ready, job.CodeDraining, 0)
	})
}

func TestAStopEndsADrainNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lasts(9*time.Minute), once)
		w := r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		drained := make(chan struct{})
		go func() { w.Drain(time.Hour); close(drained) }()
		time.Sleep(time.Minute)
		began := time.Now()
		w.Stop()
		<-drained
		if took := time.Since(began); took > time.Second {
			t.Errorf("the stop took %v", took)
		}
		r.ended(r.get(id), job.Ready, job.CodeDraining, 0)
	})
}

func TestATimeoutBeforeADrainIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			<-t.Context.Done()
			time.Sleep(8 * time.Second) // the drain begins while it cleans up
			return nil, errors.New("stopped")
		}}, func(m *manifest.Manifest) { m.Jobs["j"].Timeout = 10 * time.Second })
		w := r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		time.Sleep(12 * time.Second)
		w.Drain(time.Minute)
		r.ended(r.get(id), job.Delayed, job.CodeTimeout, 1)
	})
}

func TestAWorkerHasFourStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lasts(time.Second), nil)
		w := r.idle(nil)
		w.Drain(time.Second) // idle: nothing to do
		w.Stop()
		r.must(w.Start(t.Context()))
		if err := w.Start(t.Context()); abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("a second start: %v", err)
		}
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		go w.Drain(25 * time.Second)
		synctest.Wait()
		if err := w.Start(t.Context()); abi.CodeOf(err) != job.CodeDraining {
			t.Errorf("a start during a drain: %v", err)
		}
		w.Drain(25 * time.Second)
		r.ended(r.get(id), job.Done, "", 1)
		w.Stop() // stopped: nothing to do

		r.must(w.Start(t.Context())) // again, with a lifetime of its own
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
	})
}

func TestAStartThatCannotRegisterLeavesAnIdleWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lasts(0), nil)
		var away atomic.Bool
		away.Store(true)
		r.db.Between = onOp("Register", func(_ context.Context, call func() error) error {
			if away.Load() {
				return enginetest.Broken()
			}
			return call()
		})
		w := r.idle(nil)
		if err := w.Start(t.Context()); abi.CodeOf(err) != job.CodeDatabaseCorrupt {
			t.Errorf("error is %v", err)
		}
		away.Store(false)
		r.must(w.Start(t.Context()))
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
	})
}

func TestAGoodbyeThatHangsOrFailsStillStops(t *testing.T) {
	for name, bye := range map[string]func(context.Context) error{
		"hangs": hang,
		"fails": func(context.Context) error { return enginetest.Away() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, lasts(time.Second), nil)
				var broken atomic.Bool
				broken.Store(true)
				r.db.Between = onOp("Deregister", func(ctx context.Context, call func() error) error {
					if broken.Load() {
						return bye(ctx)
					}
					return call()
				})
				w := r.work(nil)
				began := time.Now()
				w.Drain(25 * time.Second)
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("it took %v", took)
				}
				r.logged("jobs.worker.deregister-failed", 1)
				broken.Store(false)
				r.must(w.Start(t.Context()))
				r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
			})
		})
	}
}

func TestAClaimThatHangsDoesNotHoldADrainBeyondItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lasts(time.Second), nil)
		var stuck atomic.Bool
		r.db.Between = onOp("Claim", func(_ context.Context, call func() error) error {
			if stuck.Load() {
				time.Sleep(time.Hour) // heeds no context
				return errors.New("connection reset")
			}
			return call()
		})
		w := r.work(nil)
		time.Sleep(time.Minute)
		stuck.Store(true)
		time.Sleep(3 * time.Second)
		began := time.Now()
		w.Drain(5 * time.Second)
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("the drain took %v of 5s", took)
		}
		r.logged("jobs.worker.drain-abandoned", 1)
		time.Sleep(2 * time.Hour)
	})
}
