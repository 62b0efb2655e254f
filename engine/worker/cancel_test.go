package worker_test

import (
	"errors"
	"strings"
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
)

func (r *rig) cancel(p store.CancelParams) job.Run {
	r.Helper()
	run, err := r.queue.Cancel(r.Context(), p)
	r.must(err)
	return run
}

// What a cancelled run did is undone, wherever the cancel found it, and the run
// ends cancelled. (SG23)
func TestACancelledRunIsUndoneLastStepFirst(t *testing.T) {
	for name, last := range map[string]func(*task) error{
		"asleep": func(tk *task) error { return tk.Sleep("nap", time.Hour) },
		"delayed": func(*task) error {
			return &enginetest.Fail{Failure: abi.Failure{Kind: abi.FailRetryAfter, RetryAfter: time.Hour, Message: "busy"}}
		},
		"running": func(tk *task) error {
			_, err := tk.Step("look", func() (any, error) { tk.Work(time.Hour); return nil, nil })
			return err
		},
		"in a step": func(tk *task) error {
			_, err := tk.Undoable("pay", func() (any, error) { tk.Work(time.Hour); return nil, nil }, func() error { return errors.New("never paid") })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &saga{last: last}
				r := newRig(t, handlers{"j": s.run, "told": func(*task) (any, error) { return nil, nil }}, func(m *manifest.Manifest) {
					compensates(3)(m)
					m.Jobs["j"].OnSettled = "told"
				})
				w := r.work(nil)
				id := r.enqueue("j")
				time.Sleep(time.Second)
				run := r.cancel(store.CancelParams{ID: id, Reason: "customer left"})
				if !run.State.Live() {
					t.Fatalf("answered as %s", run.State)
				}
				if name == "running" { // else its worker hears with its renewal
					w.Cancelled(id)
				}
				cancelled := time.Now()
				run = r.settles(id)
				r.ended(run, job.Cancelled, job.CodeCancelled, run.Attempt)
				if run.Error.Message != "customer left" || run.ExpiresAt.IsZero() {
					t.Errorf("ended as %+v", run)
				}
				if wait := run.FinishedAt.Sub(cancelled); wait > 11*time.Second || name == "running" && wait > time.Second {
					t.Errorf("ended %v after the cancel", wait)
				}
				s.want(t, "flight", "hotel", "undo hotel", "undo flight")
				r.logged("jobs.unwind.completed", 1)
				r.logged("jobs.lease.lost", 0)
				r.logged("jobs.settle.unowned", 0)
				if runs, err := r.db.List(t.Context(), store.ListParams{Job: "told"}); err != nil || len(runs) != 0 {
					t.Errorf("a cancel was told of: %v, %v", runs, err)
				}
				if _, err := r.queue.Cancel(t.Context(), store.CancelParams{ID: id}); abi.CodeOf(err) != job.CodeNotCancellable {
					t.Errorf("a second cancel answered %v", err)
				}
			})
		})
	}
}

// (SG23, O4)
func TestACancelWithoutCompensationEndsTheRunWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{last: func(tk *task) error { return tk.Sleep("nap", time.Hour) }}
		r := newRig(t, handlers{"j": s.run}, compensates(3))
		w := r.work(nil)
		for range 2 {
			r.enqueue("j")
		}
		last := r.enqueue("j")
		time.Sleep(time.Second)
		w.Stop()
		bulk := func(p queue.BulkParams, moved, undoing, remaining int) {
			t.Helper()
			p.Verb = queue.Cancel
			res, err := r.queue.Bulk(t.Context(), p)
			if err != nil || len(res.Moved) != moved || len(res.Undoing) != undoing || res.Remaining != remaining {
				t.Errorf("a bulk cancel answered %+v, %v", res, err)
			}
		}
		asleep, ready := store.ListParams{State: job.Suspended}, store.ListParams{State: job.Ready}
		bulk(queue.BulkParams{Filter: asleep, Limit: 1, NoCompensate: true}, 1, 0, 2)
		if run := r.cancel(store.CancelParams{ID: last, NoCompensate: true}); run.State != job.Cancelled {
			t.Errorf("answered as %s", run.State)
		}
		bulk(queue.BulkParams{Filter: asleep}, 1, 1, 0)
		// That one is being undone: there is nothing more to it, but to end that.
		bulk(queue.BulkParams{Filter: ready, DryRun: true}, 0, 0, 0)
		bulk(queue.BulkParams{Filter: ready}, 0, 0, 0)
		bulk(queue.BulkParams{Filter: ready, NoCompensate: true}, 1, 0, 0)
		time.Sleep(2 * time.Hour)
		r.work(nil)
		time.Sleep(2 * time.Hour)
		if n := s.do("last"); n != 7 { // three runs have booked, and nothing is undone
			t.Errorf("did %q", s.did)
		}
	})
}

// The cancel of a run that is being undone for its failure lets that go on, and
// the run ends cancelled, with its failure if the cancel has no reason. (SG23)
func TestARunThatIsBeingUndoneCanBeCancelled(t *testing.T) {
	for _, reason := range []string{"", "enough"} {
		synctest.Test(t, func(t *testing.T) {
			fails := 1
			s := &saga{undo: func(what string, _ *task) error {
				if fails--; what == "hotel" && fails >= 0 {
					return &enginetest.Fail{Failure: abi.Failure{Kind: abi.FailRetryAfter, RetryAfter: time.Hour, Message: "the hotel is closed"}}
				}
				return nil
			}}
			r := newRig(t, handlers{"j": s.run}, compensates(2))
			r.work(nil)
			id := r.enqueue("j")
			time.Sleep(time.Minute)
			if run := r.cancel(store.CancelParams{ID: id, Reason: reason}); run.State != job.Ready {
				t.Errorf("answered as %s", run.State)
			}
			run := r.settles(id)
			want := reason
			if want == "" {
				want = "no money"
			}
			if run.State != job.Cancelled || run.Error.Message != want {
				t.Errorf("ended %s with %+v", run.State, run.Error)
			}
			s.want(t, "flight", "hotel", "undo hotel", "undo hotel", "undo flight")
		})
	}
}

// A cancelled run whose worker is gone is undone by another, when the lease says
// that nobody runs it any more. (SG24)
func TestACancelledRunIsUndoneWhenItsLostWorkerCannotRunIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		begun := make(chan time.Time, 2)
		s := &saga{last: func(tk *task) error {
			_, err := tk.Step("look", func() (any, error) { tk.Deaf(20 * time.Second); return nil, nil })
			return err
		}}
		s.undo = func(string, *task) error { begun <- time.Now(); return nil }
		r := newRig(t, handlers{"j": s.run}, compensates(1))
		cut := r.cuttable(&away)
		r.work(r.through(cut))
		id := r.enqueue("j")
		r.reaches(id, job.Running)
		time.Sleep(time.Second)
		away.Store(true)
		cancelled := time.Now()
		r.cancel(store.CancelParams{ID: id})
		r.work(nil)
		r.ended(r.settles(id), job.Cancelled, "", 2)
		if wait := (<-begun).Sub(cancelled); wait < 20*time.Second || wait > 31*time.Second {
			t.Errorf("its undoing began %v after the cancel, want when its lease was over", wait)
		}
		s.want(t, "flight", "hotel", "undo hotel", "undo flight")
		time.Sleep(10 * time.Second) // until the lost worker has given up its writes
	})
}

// A cancelled run that cannot be undone waits for a person, whom it tells both.
// (SG8)
func TestACancelledRunThatCannotBeUndoneIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{
			last: func(tk *task) error { return tk.Sleep("nap", time.Hour) },
			undo: func(string, *task) error { return errors.New("the hotel does not answer") },
		}
		r := newRig(t, handlers{"j": s.run}, compensates(2))
		r.work(nil)
		id := r.enqueue("j")
		time.Sleep(time.Second)
		r.cancel(store.CancelParams{ID: id, Reason: "customer left"})
		run := r.settles(id)
		r.ended(run, job.Dead, job.CodeCompensationFailed, 2)
		for _, part := range []string{"the hotel does not answer", "been cancelled", "customer left"} {
			if !strings.Contains(run.Error.Message, part) {
				t.Errorf("error %q says nothing of %q", run.Error.Message, part)
			}
		}
	})
}

// What was decided holds, whatever a deploy says of the job since. (SG5)
func TestAnUnwindGoesOnThoughItsJobDoesNotCompensateAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{last: func(tk *task) error { return tk.Sleep("nap", time.Hour) }}
		r := newRig(t, handlers{"j": s.run}, compensates(2))
		w := r.work(nil)
		id := r.enqueue("j")
		time.Sleep(time.Second)
		w.Stop()
		r.cancel(store.CancelParams{ID: id})
		_, err := r.deploy.Switch(enginetest.Serve(r.guest, nil))
		r.must(err)
		r.work(nil)
		r.ended(r.settles(id), job.Cancelled, "", 1)
		s.want(t, "flight", "hotel", "undo hotel", "undo flight")
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
