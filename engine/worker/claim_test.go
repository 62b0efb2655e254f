package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/worker"
)

func TestTheNextRunStartsAsSoonAsASlotIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) { t.Work(10 * time.Millisecond); return nil, nil }}, slots(1))
		var last string
		for range 20 {
			last = r.enqueue("j")
		}
		began := time.Now()
		r.work(nil)
		done := r.settles(last)
		if took := done.FinishedAt.Sub(began); took > 250*time.Millisecond {
			t.Errorf("20 runs of 10ms one after another took %v: a poll was waited for", took)
		}
	})
}

func TestAQueueWorksWhileItsVerdictsAreWrittenButNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, slots(2))
		open := make(chan struct{})
		r.db.Between = onOp("Settle", func(_ context.Context, call func() error) error {
			<-open
			return call()
		})
		var last string
		for range 10 {
			last = r.enqueue("j")
		}
		r.work(nil)
		time.Sleep(10 * time.Second) // the store answers within its time
		synctest.Wait()
		if n := r.guest.Started(); n != 4 {
			t.Errorf("%d runs began while no verdict could be written; want the 2 slots' and as many again", n)
		}
		close(open)
		r.ended(r.settles(last), job.Done, "", 1)
	})
}

func TestOneLongRunHoldsUpNeitherItsQueueNorOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{
			"long":  func(t *task) (any, error) { t.Work(9 * time.Minute); return nil, nil },
			"short": func(*task) (any, error) { return nil, nil },
			"other": func(*task) (any, error) { return nil, nil },
		}, func(m *manifest.Manifest) {
			slots(2)(m)
			m.Queues["b"] = manifest.Queue{Name: "b", Workers: 1}
			m.Jobs["other"].Queue = "b"
		})
		long := r.enqueue("long")
		r.work(nil)
		r.reaches(long, job.Running)
		for range 10 {
			began := time.Now()
			for _, id := range []string{r.enqueue("short"), r.enqueue("other")} {
				r.settles(id)
			}
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("two short runs beside a long one took %v", took)
			}
		}
		if s := r.get(long).State; s != job.Running {
			t.Errorf("the long run is %s", s)
		}
	})
}

func TestAQueueNeverRunsMoreThanItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most, now atomic.Int64
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			t.Work(time.Second)
			now.Add(-1)
			return nil, nil
		}}, slots(3))
		db := &generous{Store: r.db}
		var ids []string
		for range 9 {
			ids = append(ids, r.enqueue("j"))
		}
		r.work(func(c *worker.Config) {
			c.Queue = queue.New(queue.Config{Store: db, Manifest: r.deploy.Manifest})
		})
		for _, id := range ids {
			run := r.settles(id)
			r.ended(run, job.Done, "", 1)
		}
		if most.Load() != 3 {
			t.Errorf("%d ran at a time, want 3", most.Load())
		}
	})
}

// generous hands out more runs than it is asked for.
type generous struct{ *enginetest.Store }

func (g *generous) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	for i := range p.Queues {
		p.Queues[i].Limit += 2
	}
	res, err := g.Store.Claim(ctx, p)
	for i := range p.Queues {
		p.Queues[i].Limit -= 2
	}
	return res, err
}

// An idle worker's claims are the cost of a fleet that has nothing to do. The
// rest is the lease's: a renewal and a look for lapsed ones each third of it, and
// a purge a minute.
func TestAnIdleWorkerAsksEverMoreRarelyAndMoreSoWhileItIsWoken(t *testing.T) {
	for _, c := range []struct {
		listening   bool
		least, most int
	}{{false, 29, 31}, {true, 11, 13}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, handlers{"j": nil}, func(m *manifest.Manifest) {
				for _, name := range []string{"a", "b"} { // one statement is for all of them
					m.Queues[name] = manifest.Queue{Name: name, Workers: 1}
				}
			})
			r.work(func(cfg *worker.Config) {
				cfg.Store = &wakeable{Store: r.db, listening: c.listening}
				cfg.Lease = 30 * time.Second
			})
			time.Sleep(61 * time.Second) // backed off, and between two beats
			before := r.db.Count("Claim")
			rest := func() int { return r.db.Count("Renew") + r.db.Count("Reclaim") + r.db.Count("Purge") }
			restBefore, renewals := rest(), r.db.Count("Renew")
			time.Sleep(time.Minute)
			if n := r.db.Count("Renew") - renewals; n < 5 || n > 7 {
				t.Errorf("%d renewals of a lease of 30 s in a minute, want one each third of it", n)
			}
			if n := r.db.Count("Claim") - before; n < c.least || n > c.most {
				t.Errorf("listening %v: %d claims in an idle minute, want %d to %d", c.listening, n, c.least, c.most)
			}
			// 6 renewals, and up to 7 looks and 2 purges, whose waits vary by a tenth.
			if n := rest() - restBefore; n > 15 {
				t.Errorf("listening %v: %d operations for leases and retention in an idle minute, want at most 15", c.listening, n)
			}
		})
	}
}

func TestAWorkerDoesNotSpinWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, nil)
		var away atomic.Bool
		away.Store(true)
		r.db.Between = onOp("Claim", func(_ context.Context, call func() error) error {
			if away.Load() {
				return enginetest.Away()
			}
			return call()
		})
		r.work(nil)
		time.Sleep(5 * time.Second)
		if n := r.db.Count("Claim"); n > 21 || n < 15 {
			t.Errorf("%d claims in 5s of an outage, want one each 250ms", n)
		}
		if n := r.events.Count("jobs.claim.failed"); n > 6 {
			t.Errorf("%d log lines for one outage", n)
		}
		away.Store(false)
		id := r.enqueue("j")
		r.settles(id)
	})
}

func TestHoweverManyWakesArriveDuringAPassOneMoreFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, slots(100))
		inside, gate := make(chan struct{}), make(chan struct{})
		first := true
		r.db.Between = onOp("Claim", func(_ context.Context, call func() error) error {
			if first {
				first = false
				close(inside)
				<-gate
			}
			return call()
		})
		// The database in memory wakes its own listeners at each commit.
		wakes := &wakeable{Store: r.db}
		r.work(func(c *worker.Config) { c.Store = wakes })
		<-inside
		for range 10 {
			wakes.wake("default")
		}
		close(gate)
		synctest.Wait()
		if n := r.db.Count("Claim"); n != 2 {
			t.Errorf("%d passes, want the one under way and one more", n)
		}
		wakes.wake("nobody serves this")
		synctest.Wait()
		if n := r.db.Count("Claim"); n != 2 {
			t.Errorf("a wake for another queue made a pass")
		}
	})
}

// wakeable is a store whose wakes the test makes.
type wakeable struct {
	*enginetest.Store
	listening bool
	wake      func(string)
}

func (w *wakeable) Wakes(wake func(string)) func() {
	w.wake = wake
	return func() {}
}

func (w *wakeable) Listening() bool { return w.listening }

func TestWithoutAnyWakeEveryRunIsFoundByPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, nil)
		r.work(func(c *worker.Config) { c.Store = &wakeable{Store: r.db} })
		time.Sleep(time.Minute) // backed off
		began := time.Now()
		run := r.settles(r.enqueue("j"))
		if took := run.FinishedAt.Sub(began); took > 2100*time.Millisecond {
			t.Errorf("found after %v", took)
		}
	})
}

func TestARetryIsPickedUpWhenItIsDueNotWhenAPollComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			if t.Attempt.Meta.Attempt == 1 {
				t.Work(time.Minute)
				return nil, context.Canceled
			}
			return time.Now(), nil
		}}, policy(func(p *job.RetryPolicy) { p.Delay = 900 * time.Millisecond }))
		r.work(func(c *worker.Config) { c.Store = &wakeable{Store: r.db} })
		id := r.enqueue("j")
		due := r.reaches(id, job.Delayed).RunAt
		run := r.settles(id)
		if late := run.ClaimedAt.Sub(due); late < 0 || late > 50*time.Millisecond {
			t.Errorf("claimed %v after it was due", late)
		}
	})
}

func TestADelayedRunOfAnotherProcessIsPickedUpWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, nil)
		res, err := r.queue.Enqueue(t.Context(), queue.Request{Job: "j", Delay: 3300 * time.Millisecond})
		r.must(err)
		r.work(func(c *worker.Config) { c.Store = &wakeable{Store: r.db} })
		run := r.settles(res.ID)
		if late := run.ClaimedAt.Sub(run.RunAt); late < 0 || late > 50*time.Millisecond {
			t.Errorf("claimed %v after it was due", late)
		}
	})
}

func TestAJobThatThisBuildDoesNotKnowWaitsUncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := func(*task) (any, error) { return nil, nil }
		r := newRig(t, handlers{"old": none}, nil)
		newer := &enginetest.Guest{Name: "v2", Handlers: handlers{"old": none, "new": none}}
		elsewhere := queue.New(queue.Config{Store: r.db, Manifest: func() *manifest.Manifest {
			return enginetest.Serve(newer, nil).Manifest
		}})
		res, err := elsewhere.Enqueue(t.Context(), queue.Request{Job: "new"})
		r.must(err)
		w := r.work(nil)
		time.Sleep(5 * time.Minute)
		run := r.get(res.ID)
		r.ended(run, job.Delayed, job.CodeUnknownJob, 0)
		if run.Claims < 9 || run.Claims > 11 {
			t.Errorf("claimed %d times in 5 minutes, want each 30s", run.Claims)
		}
		r.logged("jobs.worker.parked", 1)
		_, err = r.deploy.Switch(enginetest.Serve(newer, nil))
		r.must(err)
		w.Configure(r.deploy.Manifest())
		r.ended(r.settles(res.ID), job.Done, job.CodeUnknownJob, 1)
	})
}

func TestARunWhoseHistoryCannotBeReadIsHandedBackUncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			if _, err := t.Step("one", func() (any, error) { return 1, nil }); err != nil {
				return nil, err
			}
			return nil, t.Sleep("nap", time.Second)
		}}, policy(func(p *job.RetryPolicy) { p.Attempts = 1 }))
		failures := 3
		r.db.Between = onOp("ListSteps", func(_ context.Context, call func() error) error {
			if failures > 0 {
				failures--
				return enginetest.Away()
			}
			return call()
		})
		r.work(nil)
		run := r.settles(r.enqueue("j"))
		r.ended(run, job.Done, job.CodeDatabaseUnavailable, 1)
		if run.Claims != 5 {
			t.Errorf("%d claims, want the first, three handed back and the last", run.Claims)
		}
	})
}

func TestARunWhoseHistoryIsNeverAnsweredIsHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) { return nil, t.Sleep("nap", time.Second) }},
			policy(func(p *job.RetryPolicy) { p.Attempts = 1 }))
		hang := true
		r.db.Between = onOp("ListSteps", func(ctx context.Context, call func() error) error {
			if hang {
				hang = false
				<-ctx.Done()
				return ctx.Err()
			}
			return call()
		})
		r.work(nil)
		run := r.settles(r.enqueue("j"))
		r.ended(run, job.Done, abi.CodeHostFailure, 1)
		if run.Claims != 3 {
			t.Errorf("%d claims, want the first, one handed back and the last", run.Claims)
		}
	})
}

func TestAClaimWhoseAnswerWasLostStrandsNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{
			"long":  func(t *task) (any, error) { t.Work(3 * time.Second); return nil, nil },
			"short": func(*task) (any, error) { return nil, nil },
		}, nil)
		var lose atomic.Bool
		r.db.Between = onOp("Claim", func(_ context.Context, call func() error) error {
			if lose.Swap(false) {
				return enginetest.Lost(call)
			}
			return call()
		})
		w := r.work(nil)
		long := r.enqueue("long")
		r.reaches(long, job.Running)
		lose.Store(true)
		short := r.enqueue("short")
		run := r.settles(short)
		r.ended(run, job.Done, "", 1)
		r.ended(r.settles(long), job.Done, "", 1)
		if took := run.FinishedAt.Sub(run.CreatedAt); took > 5*time.Second {
			t.Errorf("found after %v", took)
		}
		w.Stop()
		if all, err := r.db.ListWorkers(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("workers left: %v, %v", all, err)
		}
	})
}

func TestAWorkerServesOnlyTheQueuesItIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }, "k": func(*task) (any, error) { return nil, nil }}, func(m *manifest.Manifest) {
			m.Queues["b"] = manifest.Queue{Name: "b", Workers: 1}
			m.Jobs["k"].Queue = "b"
		})
		j, k := r.enqueue("j"), r.enqueue("k")
		r.work(func(c *worker.Config) { c.Queues = []string{"b", "constructor"} })
		r.settles(k)
		r.logged("jobs.worker.queue-unknown", 1)
		time.Sleep(time.Minute)
		if s := r.get(j).State; s != job.Ready {
			t.Errorf("a run of a queue that is not served is %s", s)
		}
	})
}

func TestALeaseTooShortIsRefused(t *testing.T) {
	r := newRig(t, handlers{"j": nil}, nil)
	_, err := worker.New(worker.Config{Store: r.db, Queue: r.queue, Deploy: r.deploy, Lease: 100 * time.Millisecond})
	if abi.CodeOf(err) != job.CodeInvalid {
		t.Errorf("error is %v", err)
	}
}
