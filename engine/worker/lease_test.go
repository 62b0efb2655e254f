package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/worker"
)

// sixSeconds is a lease that a lock of a file outlasts.
func sixSeconds(c *worker.Config) { c.Lease = 6 * time.Second }

// A lease begins when the store grants it. A registration that waited for longer
// than one, or whose answer did, is no lease that was spent on waiting.
func TestARegistrationThatTakesLongerThanALeaseLosesNoRun(t *testing.T) {
	waits := map[string]func(d time.Duration, call func() error) error{
		"lands late":    func(d time.Duration, call func() error) error { time.Sleep(d); return call() },
		"answered late": func(d time.Duration, call func() error) error { err := call(); time.Sleep(d); return err },
	}
	for name, wait := range waits {
		for _, d := range []time.Duration{1900 * time.Millisecond, 3 * time.Second, 5900 * time.Millisecond, 9900 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " by ", d), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, forFive, nil)
					var slow atomic.Bool
					r.db.Between = onOp("Register", func(_ context.Context, call func() error) error {
						if slow.Swap(false) {
							return wait(d, call)
						}
						return call()
					})
					w := r.work(sixSeconds)
					id := r.enqueue("j")
					first := r.reaches(id, job.Running).Worker
					slow.Store(true)
					r.must(r.db.Store.Deregister(t.Context(), first)) // as an operator would
					r.ended(r.settles(id), job.Done, "", 1)
					r.logged("jobs.lease.lost", 1) // the first worker's
					if !w.Leased() {
						t.Error("the worker holds no lease in the end")
					}
				})
			})
		}
	}
}

func TestAStartThatTakesLongerThanALeaseHoldsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, forFive, nil)
		r.db.Between = onOp("Register", func(_ context.Context, call func() error) error {
			time.Sleep(time.Minute)
			return call()
		})
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
		r.logged("jobs.lease.lost", 0)
	})
}

// No store that answers later than a lease can hold a worker up: it says so
// instead of claiming runs that it would lose.
func TestAWorkerWhoseLeaseIsNeverGrantedInTimeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, forFive, nil)
		r.db.Between = func(_ context.Context, op string, call func() error) error {
			if op == "Register" || op == "Renew" {
				time.Sleep(31 * time.Second)
			}
			return call()
		}
		w := r.idle(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		err := w.Start(ctx)
		if err == nil || w.Leased() {
			t.Errorf("started: %v", err)
		}
		r.logged("jobs.lease.lost", 0)
	})
}

// One spell of a locked file costs one lease, however long it lasts: what comes
// back is healthy.
func TestASpellOfALockedDatabaseLosesARunOnce(t *testing.T) {
	for _, spell := range []time.Duration{10 * time.Second, 15 * time.Second, 20 * time.Second, 25 * time.Second, time.Minute} {
		t.Run(spell.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, forFive, nil)
				var mu sync.Mutex
				var until time.Time
				r.db.Between = func(ctx context.Context, op string, call func() error) error {
					mu.Lock()
					left := time.Until(until)
					mu.Unlock()
					if left > 0 { // like SQLite's: it waits for the file, though not for ever
						ctx, cancel := context.WithTimeout(ctx, left)
						defer cancel()
						<-ctx.Done()
						if time.Now().Before(until) {
							return enginetest.Away()
						}
					}
					return call()
				}
				r.work(sixSeconds)
				id := r.enqueue("j")
				r.reaches(id, job.Running)
				mu.Lock()
				until = time.Now().Add(spell)
				mu.Unlock()
				run := r.settles(id)
				r.ended(run, job.Done, "", 2)
				r.logged("jobs.lease.lost", 1)
				r.logged("jobs.reclaim.requeued", 1)
			})
		})
	}
}

// A renewal that is answered late, but in time, is followed by the next at once:
// that has less of the lease left to land in.
func TestARenewalThatTookMostOfALeaseIsFollowedByTheNextInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, forFive, nil)
		n := 0
		r.db.Between = onOp("Renew", func(_ context.Context, call func() error) error {
			err := call()
			if n++; n == 1 {
				time.Sleep(19500 * time.Millisecond) // heeds no context
			} else {
				time.Sleep(time.Second)
			}
			return err
		})
		w := r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
		r.logged("jobs.lease.lost", 0)
		w.Stop()
		time.Sleep(time.Minute) // until no renewal is under way
	})
}

// Whatever is late, before it lands or after, a handler that was not told to stop
// runs under a lease that the store holds for it.
func TestNoAttemptOutlivesTheLeaseThatTheStoreHoldsForIt(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				var mu sync.Mutex
				delay := func() time.Duration {
					mu.Lock()
					defer mu.Unlock()
					if rng.IntN(3) > 0 {
						return 0
					}
					return time.Duration(rng.Int64N(int64(7*time.Second))) / 1e6 * 1e6
				}
				var r *rig
				looked := 0
				r = newRig(t, handlers{"j": func(tk *task) (any, error) {
					for range 400 {
						tk.Work(100 * time.Millisecond)
						run := r.get(tk.Attempt.Meta.RunID)
						workers, err := r.db.Store.ListWorkers(context.Background())
						if err != nil {
							return nil, err
						}
						if tk.Context.Err() != nil {
							return nil, tk.Context.Err()
						}
						held := false
						for _, w := range workers {
							// The store counts in whole milliseconds.
							held = held || w.ID == run.Worker && !w.ExpiresAt.Add(time.Millisecond).Before(time.Now())
						}
						if looked++; !held || run.Attempt != tk.Attempt.Meta.Attempt {
							t.Errorf("at %v attempt %d goes on while the run is %s at attempt %d under %q, of %+v", time.Now(), tk.Attempt.Meta.Attempt, run.State, run.Attempt, run.Worker, workers)
							return nil, nil
						}
					}
					return nil, nil
				}}, nil)
				r.db.Between = func(_ context.Context, op string, call func() error) error {
					if op != "Register" && op != "Renew" {
						return call()
					}
					time.Sleep(delay())
					err := call()
					time.Sleep(delay())
					return err
				}
				w := r.work(func(c *worker.Config) { sixSeconds(c); c.MaxOrphans = -1 })
				id := r.enqueue("j")
				time.Sleep(2 * time.Minute)
				if looked == 0 {
					t.Errorf("no attempt was looked at; the run is %+v", r.get(id))
				}
				w.Stop()
				time.Sleep(time.Minute) // until no call is under way
			})
		})
	}
}
