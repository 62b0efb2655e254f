package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/worker"
)

// telling has runs of every job but "tell" told of.
func telling(m *manifest.Manifest) {
	for name, j := range m.Jobs {
		if name != "tell" {
			j.OnSettled = "tell"
		}
	}
}

// told are the endings that the job "tell" was enqueued with for a run.
func (r *rig) told(id string) (out []job.Ending) {
	r.Helper()
	runs, err := r.db.Store.List(r.Context(), store.ListParams{Job: "tell", Parent: id})
	r.must(err)
	for _, run := range runs {
		var e job.Ending
		r.must(json.Unmarshal(r.get(run.ID).Input, &e))
		out = append(out, e)
	}
	return out
}

func TestEachEndIsToldOnceWithItsCommit(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sent := map[string]int{}
			var mu sync.Mutex
			fails := 0
			r := newRig(t, handlers{
				"tell": func(t *task) (any, error) {
					mu.Lock()
					defer mu.Unlock()
					var e job.Ending
					if err := json.Unmarshal(t.Attempt.Input, &e); err != nil {
						return nil, err
					}
					sent[e.Run]++
					return nil, nil
				},
				"done": func(*task) (any, error) { return map[string]any{"n": 1}, nil },
				"big":  func(*task) (any, error) { return strings.Repeat("x", job.MaxEndingOutput), nil },
				"sleeps": func(t *task) (any, error) { // suspended, then retried, then done
					if err := t.Sleep("nap", time.Minute); err != nil {
						return nil, err
					}
					if fails++; fails%2 == 1 {
						return nil, errors.New("again")
					}
					return nil, nil
				},
				"dead": func(*task) (any, error) {
					return nil, &enginetest.Fail{Failure: abi.Failure{Kind: abi.FailTerminal, Code: "X_CARD", Message: "of the operator", Fix: "for the caller"}}
				},
				"dropped": func(*task) (any, error) { return nil, errors.New("raw") },
			}, func(m *manifest.Manifest) {
				telling(m)
				m.Jobs["dropped"].Retry.DeadLetter = false
			})
			if lost {
				// The commit is done and its answer is lost, every other time.
				n := 0
				r.db.Between = onOp("Settle", func(_ context.Context, call func() error) error {
					if n++; n%2 == 1 {
						return enginetest.Lost(call)
					}
					return call()
				})
			}
			r.work(nil)
			for jobName, want := range map[string]job.Ending{
				"done":    {Outcome: job.Completed, State: job.Done, Attempts: 1, Output: json.RawMessage(`{"n":1}`)},
				"big":     {Outcome: job.Completed, State: job.Done, Attempts: 1, OutputBytes: job.MaxEndingOutput + 2},
				"sleeps":  {Outcome: job.Completed, State: job.Done, Attempts: 2, Output: json.RawMessage("null")},
				"dead":    {Outcome: job.DeadLettered, State: job.Dead, Attempts: 1, Code: "X_CARD"},
				"dropped": {Outcome: job.Dropped, State: job.Failed, Attempts: 3},
			} {
				id := r.enqueue(jobName)
				r.settles(id)
				got := r.told(id)
				want.Run, want.Job = id, jobName
				a, _ := json.Marshal(got)
				b, _ := json.Marshal([]job.Ending{want})
				if string(a) != string(b) {
					t.Errorf("%s: told %s, want %s", jobName, a, b)
				}
				for _, run := range r.list("tell", id) {
					if r.settles(run); sent[id] != 1 {
						t.Errorf("%s: the handler heard of it %d times", jobName, sent[id])
					}
					if again := r.told(run); len(again) != 0 {
						t.Errorf("the end of a run that tells was told: %+v", again)
					}
				}
			}
		})
	}
}

// list are the ids of the runs of a job that have that parent.
func (r *rig) list(jobName, parent string) (ids []string) {
	r.Helper()
	runs, err := r.db.Store.List(r.Context(), store.ListParams{Job: jobName, Parent: parent})
	r.must(err)
	for _, run := range runs {
		ids = append(ids, run.ID)
	}
	return ids
}

// A run that a person retries ends again, which is told again.
func TestAnotherEndOfARunIsToldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"tell": func(*task) (any, error) { return nil, nil }, "j": func(*task) (any, error) { return nil, nil }}, telling)
		r.work(nil)
		id := r.enqueue("j")
		r.settles(id)
		_, err := r.db.Store.Requeue(t.Context(), store.RequeueParams{ID: id})
		r.must(err)
		r.settles(id)
		if n := len(r.told(id)); n != 2 {
			t.Errorf("told %d times of two ends", n)
		}
	})
}

// (OS2, F12) A run that never began has an end all the same.
func TestARefusalIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"tell": func(*task) (any, error) { return nil, nil }, "j": func(t *task) (any, error) { t.Work(time.Minute); return nil, nil }},
			func(m *manifest.Manifest) {
				telling(m)
				m.Jobs["j"].Concurrency = manifest.Concurrency{Limit: 1, Keyed: true, Key: limitKey("{k}"), Fail: true}
			})
		first := r.enqueueFor("j", "", `{"k":1}`)
		r.work(nil)
		r.reaches(first, job.Running)
		second := r.enqueueFor("j", "", `{"k":1}`)
		r.ended(r.settles(second), job.Failed, job.CodeKeyBusy, 0)
		got := r.told(second)
		if len(got) != 1 || got[0].Outcome != job.Refused || got[0].State != job.Failed || got[0].Code != job.CodeKeyBusy || got[0].Attempts != 0 {
			t.Errorf("told %+v", got)
		}
	})
}

func TestABurialIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"tell": nil, "j": nil}, func(m *manifest.Manifest) {
			telling(m)
			m.Jobs["j"].Retry.Attempts = 1
		})
		id := r.enqueue("j")
		r.claimBy("w1")
		// One sweep buries it and loses the answer, the next finds nothing to do.
		lost, start := false, time.Now()
		r.db.Between = onOp("Reclaim", func(_ context.Context, call func() error) error {
			if !lost && time.Since(start) > 30*time.Second {
				lost = true
				return enginetest.Lost(call)
			}
			return call()
		})
		r.work(func(c *worker.Config) { c.Queues = []string{"other"} })
		time.Sleep(2 * time.Minute)
		r.ended(r.get(id), job.Dead, job.CodeMaxAttempts, 1)
		if got := r.told(id); !lost || len(got) != 1 || got[0].Outcome != job.Orphaned || got[0].State != job.Dead || got[0].Code != job.CodeMaxAttempts || got[0].Attempts != 1 {
			t.Errorf("told %+v (an answer was lost: %v)", got, lost)
		}
	})
}

func TestACancelledOrInterruptedRunIsNotToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"tell": nil, "j": func(t *task) (any, error) { t.Work(time.Hour); return nil, nil }}, telling)
		w := r.work(nil)
		cancelled, cut := r.enqueue("j"), r.enqueue("j")
		r.reaches(cancelled, job.Running)
		r.reaches(cut, job.Running)
		_, err := r.db.Store.Cancel(t.Context(), store.CancelParams{ID: cancelled})
		r.must(err)
		w.Stop()
		r.ended(r.get(cancelled), job.Cancelled, "", 1)
		r.ended(r.get(cut), job.Ready, r.get(cut).Error.Code, 0)
		for _, id := range []string{cancelled, cut} {
			if got := r.told(id); len(got) != 0 {
				t.Errorf("told %+v", got)
			}
		}
	})
}

// (C23, C26, C27)
func TestAFailuresTextLendsItNoCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const advice = "use another card"
		long := job.CodeTimeout + ": " + strings.Repeat("x", job.MaxErrorText) + "\tfix: pay me"
		r := newRig(t, handlers{
			"tell": func(*task) (any, error) { return nil, nil },
			"j": func(*task) (any, error) {
				return nil, &enginetest.Fail{Failure: abi.Failure{Kind: abi.FailTerminal, Message: long, Fix: advice}}
			},
		}, telling)
		r.work(nil)
		id := r.enqueue("j")
		run := r.settles(id)
		r.ended(run, job.Dead, "", 1)
		if run.Error.Fix != advice {
			t.Errorf("a caller is told %q", run.Error.Fix)
		}
		if m := run.Error.Message; len(m) > job.MaxErrorText || !strings.HasSuffix(m, "[terminal: not tried again]") {
			t.Errorf("the text of %d bytes ends with %q", len(m), m[len(m)-40:])
		}
		if got := r.told(id); len(got) != 1 || got[0].Code != "" {
			t.Errorf("told %+v", got)
		}
	})
}
