package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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

// saga is a job that books and then fails, and what it did.
type saga struct {
	mu   sync.Mutex
	did  []string
	last func(t *task) error // what follows the bookings
	undo func(what string, t *task) error
}

func (s *saga) run(t *task) (any, error) {
	for _, what := range []string{"flight", "hotel"} {
		_, err := t.Undoable(what, func() (any, error) {
			s.do(what)
			return what, nil
		}, func() error {
			s.do("undo " + what)
			if s.undo != nil {
				return s.undo(what, t)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if s.last == nil {
		return nil, errors.New("no money")
	}
	return "paid", s.last(t)
}

// do notes what is done, and answers how much that is.
func (s *saga) do(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.did = append(s.did, what)
	return len(s.did)
}

func (s *saga) want(t *testing.T, did ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.did, did) {
		t.Errorf("did %q, want %q", s.did, did)
	}
}

// doomed starts a worker, and answers what cuts it off from its database until
// its lease has lapsed.
func (r *rig) doomed() (cutOff func()) {
	r.Helper()
	var away atomic.Bool
	r.work(r.through(r.cuttable(&away)))
	return func() {
		away.Store(true)
		time.Sleep(time.Minute)
	}
}

// cuttable is a view of the database that is away while away says so.
func (r *rig) cuttable(away *atomic.Bool) *enginetest.Store {
	db := r.view()
	db.Between = func(_ context.Context, _ string, call func() error) error {
		if away.Load() {
			return enginetest.Away()
		}
		return call()
	}
	return db
}

// compensates is the manifest of a saga.
func compensates(attempts int) func(*manifest.Manifest) {
	return func(m *manifest.Manifest) {
		m.Jobs["j"].Compensates = true
		m.Jobs["j"].Retry.Attempts = attempts
	}
}

// While attempts are left nothing is undone; then completed steps are, the last
// first, and the run keeps its own failure. (SG2, SG3, SG4)
func TestARunThatFailsForGoodIsUndoneLastStepFirst(t *testing.T) {
	for _, deadLetter := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &saga{}
			r := newRig(t, handlers{"j": s.run}, func(m *manifest.Manifest) {
				compensates(3)(m)
				m.Jobs["j"].Retry.DeadLetter = deadLetter
			})
			r.work(nil)
			run := r.settles(r.enqueue("j"))
			want := job.Dead
			if !deadLetter {
				want = job.Failed
			}
			r.ended(run, want, "", 4)
			if run.Error.Message != "no money" {
				t.Errorf("error %+v", run.Error)
			}
			s.want(t, "flight", "hotel", "undo hotel", "undo flight")
			r.logged("jobs.unwind.completed", 1)
			records, err := r.db.Attempts(t.Context(), run.ID)
			if err != nil || len(records) != 4 || records[2].Outcome != job.Unwinding {
				t.Errorf("timeline %+v, %v", records, err)
			}
		})
	}
}

// Whatever its guest's SDK lets pass, a compensator that could never run stops the run
// before its step begins. (SG1)
func TestACompensatorThatTheJobDoesNotDeclareEndsTheRunBeforeItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{}
		r := newRig(t, handlers{"j": s.run}, nil)
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Dead, job.CodeCompensationUnknown, 1)
		s.want(t)
	})
}

func TestARunThatSucceedsOrFailsBeforeItsFirstStepUndoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{last: func(*task) error { return nil }}
		r := newRig(t, handlers{"j": s.run}, compensates(1))
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
		s.want(t, "flight", "hotel")
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, errors.New("at once") }}, compensates(1))
		r.work(nil)
		r.ended(r.settles(r.enqueue("j")), job.Dead, "", 1)
	})
}

// (SG7)
func TestACompensatorIsTriedAgainAsThePolicySays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := 2
		var kept []string // the run's failure while it is undone
		var r *rig
		s := &saga{undo: func(what string, t *task) error {
			kept = append(kept, r.get(t.Attempt.Meta.RunID).Error.Message)
			if what == "hotel" {
				if fails--; fails >= 0 {
					return errors.New("the hotel does not answer")
				}
			}
			return nil
		}}
		r = newRig(t, handlers{"j": s.run}, compensates(3))
		r.work(nil)
		id := r.enqueue("j")
		run := r.settles(id)
		r.ended(run, job.Dead, "", 6)
		if kept = append(kept, run.Error.Message); !slices.Equal(kept, slices.Repeat([]string{"no money"}, 5)) {
			t.Errorf("its failures were %q", kept)
		}
		s.want(t, "flight", "hotel", "undo hotel", "undo hotel", "undo hotel", "undo flight")
		r.logged("jobs.unwind.retried", 2)
	})
}

// Both failures are told. (SG8)
func TestAStepThatCannotBeUndoneEndsTheRunForAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{undo: func(string, *task) error { return errors.New("the hotel does not answer") }}
		r := newRig(t, handlers{"j": s.run}, compensates(2))
		r.work(nil)
		run := r.settles(r.enqueue("j"))
		r.ended(run, job.Dead, job.CodeCompensationFailed, 4)
		for _, part := range []string{"the hotel does not answer", "no money"} {
			if !strings.Contains(run.Error.Message, part) {
				t.Errorf("error %q says nothing of %q", run.Error.Message, part)
			}
		}
		s.want(t, "flight", "hotel", "undo hotel", "undo hotel")
		r.logged("jobs.unwind.failed", 1)
	})
}

// Once decided, a run is undone whatever its handler would do now, and what was
// undone before its worker was lost is not undone again. (SG5, SG12)
func TestAnUnwindGoesOnAfterItsWorkerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var again atomic.Bool
		lost := make(chan struct{})
		s := &saga{
			last: func(*task) error {
				if again.Load() {
					return nil // it would succeed now
				}
				return enginetest.Terminal("", "no money")
			},
			undo: func(what string, tk *task) error {
				if what == "flight" && again.CompareAndSwap(false, true) {
					close(lost)
					tk.Work(time.Hour)
				}
				return nil
			},
		}
		r := newRig(t, handlers{"j": s.run}, compensates(2))
		cutOff := r.doomed()
		id := r.enqueue("j")
		<-lost
		cutOff()
		r.work(nil)
		run := r.settles(id)
		r.ended(run, job.Dead, "", run.Attempt)
		if run.Error.Message != "no money [terminal: not tried again]" {
			t.Errorf("error %+v", run.Error)
		}
		s.want(t, "flight", "hotel", "undo hotel", "undo flight", "undo flight")
	})
}

// (SG9)
func TestADrainDuringAnUnwindIsUncountedAndKeepsTheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{}
		begun := make(chan struct{}, 3)
		var first atomic.Bool
		first.Store(true)
		s.undo = func(what string, tk *task) error {
			begun <- struct{}{}
			if first.CompareAndSwap(true, false) {
				tk.Work(time.Hour)
			}
			return nil
		}
		r := newRig(t, handlers{"j": s.run}, compensates(1))
		w := r.work(nil)
		id := r.enqueue("j")
		<-begun
		w.Drain(4 * time.Second)
		run := r.get(id)
		if run.State != job.Ready || run.Attempt != 1 || run.Error.Message != "no money" {
			t.Errorf("handed back as %s at attempt %d with %+v", run.State, run.Attempt, run.Error)
		}
		r.work(nil)
		run = r.settles(id)
		r.ended(run, job.Dead, "", 2)
		s.want(t, "flight", "hotel", "undo hotel", "undo hotel", "undo flight")
	})
}

// A guest that its host cannot stop is no way around the unwind: neither in the
// last attempt forward nor in one that undoes.
func TestARunWhoseGuestDoesNotStopIsUndoneAllTheSame(t *testing.T) {
	for _, undoing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var once atomic.Bool
			deaf := func(tk *task) {
				if once.CompareAndSwap(false, true) {
					tk.Deaf(10 * time.Minute)
				}
			}
			s := &saga{
				last: func(tk *task) error {
					if !undoing {
						deaf(tk)
					}
					return enginetest.Terminal("NO_MONEY", "no money")
				},
				undo: func(what string, tk *task) error {
					if undoing && what == "flight" {
						deaf(tk)
					}
					return nil
				},
			}
			r := newRig(t, handlers{"j": s.run}, func(m *manifest.Manifest) {
				compensates(2)(m)
				m.Jobs["j"].Timeout = time.Minute
				if !undoing {
					m.Jobs["j"].Retry.Attempts = 1
				}
			})
			r.work(nil)
			run := r.settles(r.enqueue("j"))
			time.Sleep(10 * time.Minute) // the guest's own end
			if !undoing {
				r.ended(run, job.Dead, job.CodeTimeout, 2)
				s.want(t, "flight", "hotel", "undo hotel", "undo flight")
				return
			}
			r.ended(run, job.Dead, "NO_MONEY", 3)
			s.want(t, "flight", "hotel", "undo hotel", "undo flight", "undo flight")
		})
	}
}

// What a handler does outside steps may fail before it has asked for what an
// earlier attempt booked: nothing is known to be undoable then, and the run is
// undone all the same, or is a person's if its handler never comes that far.
func TestARunThatFailsBeforeItsRecordsIsNotLeftHalfDone(t *testing.T) {
	for _, comesBack := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &saga{}
			var attempts atomic.Int64
			r := newRig(t, handlers{"j": func(tk *task) (any, error) {
				if n := attempts.Add(1); n == 2 || n > 2 && !comesBack {
					return nil, enginetest.Terminal("NO_CONFIG", "no configuration")
				}
				return s.run(tk)
			}}, compensates(3))
			r.work(nil)
			run := r.settles(r.enqueue("j"))
			if comesBack {
				r.ended(run, job.Dead, "NO_CONFIG", 3)
				s.want(t, "flight", "hotel", "undo hotel", "undo flight")
				return
			}
			r.ended(run, job.Dead, job.CodeCompensationFailed, run.Attempt)
			s.want(t, "flight", "hotel")
		})
	}
}

// (SG10, S4b)
func TestARunThatLosesItsWorkerOnItsLastAttemptIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := make(chan struct{})
		var again atomic.Bool
		s := &saga{last: func(tk *task) error {
			if again.CompareAndSwap(false, true) {
				close(reached)
				tk.Work(time.Hour)
			}
			return nil
		}}
		r := newRig(t, handlers{"j": s.run}, compensates(1))
		cutOff := r.doomed()
		id := r.enqueue("j")
		<-reached
		cutOff()
		r.work(nil)
		r.ended(r.settles(id), job.Dead, job.CodeMaxAttempts, 2)
		s.want(t, "flight", "hotel", "undo hotel", "undo flight")
	})
}

// Nobody can say whether a once step that was cut off took effect: the unwind
// stops at once. (SG11)
func TestAOnceStepOfUnknownOutcomeStopsTheUnwind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := make(chan struct{}, 1)
		s := &saga{last: func(tk *task) error {
			_, err := tk.Once("charge", func() (any, error) {
				reached <- struct{}{}
				tk.Work(time.Hour)
				return nil, nil
			})
			return err
		}}
		r := newRig(t, handlers{"j": s.run}, compensates(5))
		cutOff := r.doomed()
		id := r.enqueue("j")
		<-reached
		cutOff()
		r.work(nil)
		run := r.settles(id)
		if run.State != job.Dead || run.Error.Code != job.CodeCompensationFailed || !strings.Contains(run.Error.Message, job.CodeStepOutcomeUnknown) {
			t.Errorf("%s with %+v", run.State, run.Error)
		}
		s.want(t, "flight", "hotel")
	})
}

// A run that was undone is not taken up where it was: a fresh one begins in its
// place. (SG22)
func TestARetryOfARunThatWasUndoneIsAFreshRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rich atomic.Bool
		s := &saga{last: func(*task) error {
			if rich.Load() {
				return nil
			}
			return errors.New("no money")
		}}
		r := newRig(t, handlers{"j": s.run}, compensates(1))
		r.work(nil)
		id := r.enqueue("j")
		r.settles(id)
		_, err := r.queue.Retry(t.Context(), store.RequeueParams{ID: id, FromStep: "hotel"})
		if abi.CodeOf(err) != job.CodeNotRequeueable {
			t.Errorf("retry from a step answered %v", err)
		}
		rich.Store(true)
		fresh, err := r.queue.Retry(t.Context(), store.RequeueParams{ID: id})
		r.must(err)
		if fresh.ID == id || fresh.Parent != id {
			t.Errorf("answered run %s with parent %s", fresh.ID, fresh.Parent)
		}
		r.ended(r.settles(fresh.ID), job.Done, "", 1)
		for _, dry := range []bool{true, false} { // nothing is left to be done
			res, err := r.queue.Bulk(t.Context(), queue.BulkParams{Verb: queue.Retry, Filter: store.ListParams{State: job.Dead}, DryRun: dry})
			if err != nil || len(res.Moved)+res.Blocked+res.Remaining != 0 {
				t.Errorf("a bulk retry answered %+v, %v", res, err)
			}
		}
		// The first one is still dead: a retry of all dead runs must not run it anew
		// each time.
		if again, err := r.queue.Retry(t.Context(), store.RequeueParams{ID: id}); abi.CodeOf(err) != job.CodeNotRequeueable || !strings.Contains(err.Error(), fresh.ID) {
			t.Errorf("a second retry answered run %s, %v", again.ID, err)
		}
		r.ended(r.get(id), job.Dead, "", 2)
		s.want(t, "flight", "hotel", "undo hotel", "undo flight", "flight", "hotel")
	})
}

// (SG17) Told is the end, not the decision to undo, and what the run failed of.
func TestTheEndOfARunThatWasUndoneIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{last: func(*task) error { return enginetest.Terminal("X_CARD", "no money") }}
		r := newRig(t, handlers{"tell": func(*task) (any, error) { return nil, nil }, "j": s.run}, func(m *manifest.Manifest) {
			telling(m)
			compensates(3)(m)
		})
		r.work(nil)
		run := r.settles(r.enqueue("j"))
		s.want(t, "flight", "hotel", "undo hotel", "undo flight")
		got := r.told(run.ID)
		if len(got) != 1 || got[0].State != job.Dead || got[0].Code != "X_CARD" || got[0].Attempts != run.Attempt {
			t.Errorf("told %+v of a run that is %s at attempt %d", got, run.State, run.Attempt)
		}
	})
}

// (SG20, SG21) Undoing is a step's body: it has a step's ceiling, and cannot sleep.
func TestACompensatorThatSleepsOrTakesTooLongHasFailed(t *testing.T) {
	for name, c := range map[string]struct {
		undo func(t *task) error
		says string
	}{
		"sleeps": {func(t *task) error { return t.Sleep("nap", time.Hour) }, "inside step"},
		"long":   {func(t *task) error { t.Work(time.Hour); return t.Context.Err() }, job.CodeStepTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &saga{undo: func(_ string, t *task) error { return c.undo(t) }}
				r := newRig(t, handlers{"j": s.run}, func(m *manifest.Manifest) {
					compensates(1)(m)
					m.Jobs["j"].StepTimeout = time.Minute
				})
				r.work(nil)
				run := r.settles(r.enqueue("j"))
				r.ended(run, job.Dead, job.CodeCompensationFailed, 2)
				if !strings.Contains(run.Error.Message, c.says) {
					t.Errorf("%q says nothing of %s", run.Error.Message, c.says)
				}
			})
		})
	}
}
