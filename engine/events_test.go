package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// ends waits for the end of a run.
func ends(t *testing.T, e *engine.Engine, id string) job.Run {
	t.Helper()
	r, err := e.Client().Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func enqueued(t *testing.T, e *engine.Engine, jobName string) string {
	t.Helper()
	res, err := e.Client().Enqueue(t.Context(), engine.Request{Job: jobName})
	if err != nil {
		t.Fatal(err)
	}
	return res.ID
}

func TestARunThatWaitsGoesOnWithTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"ask": func(t *enginetest.Task) (any, error) {
				first, err := t.Wait("first", "answer", "o-1", 24*time.Hour)
				if err != nil {
					return nil, err
				}
				second, err := t.Wait("second", "answer", "o-1", 24*time.Hour)
				if err != nil {
					return nil, err
				}
				_, err = t.Wait("third", "answer", "o-1", time.Hour)
				var r *abi.Refusal
				if !errors.As(err, &r) || r.Code != abi.CodeTimeout {
					return nil, fmt.Errorf("the third wait answered %v", err)
				}
				return []json.RawMessage{first, second}, nil
			},
			"tell": func(t *enginetest.Task) (any, error) {
				_, err := t.Step("tell", func() (any, error) {
					return nil, errors.Join(t.Publish("answer", "o-1", 2), t.Publish("answer", "o-2", 3))
				})
				return nil, err
			},
		}}
		e := serve(t, g)
		id := enqueued(t, e, "ask")
		synctest.Wait()
		if r, err := e.Client().Get(t.Context(), id); err != nil || r.State != job.Suspended || r.Attempt != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		if g.Running() != 0 {
			t.Error("a waiting run holds an instance")
		}
		p, err := e.Client().Publish(t.Context(), engine.Event{Topic: "answer", Key: "o-1", Payload: []byte("1")})
		if err != nil || p.Woken != 1 {
			t.Fatalf("%+v, %v", p, err)
		}
		ends(t, e, enqueued(t, e, "tell"))
		began := time.Now()
		if r := ends(t, e, id); r.State != job.Done || string(r.Output) != "[1,2]" || r.Attempt != 1 {
			t.Errorf("the run is %s with %s, attempt %d: %+v", r.State, r.Output, r.Attempt, r.Error)
		}
		if d := time.Since(began); d < time.Hour || d > time.Hour+time.Minute {
			t.Errorf("the third wait took %v", d)
		}
		events, err := e.Client().Events(t.Context(), store.ListEventsParams{Key: "o-1"})
		if err != nil || len(events) != 2 || events[0].By != "tell" {
			t.Errorf("events %+v, %v", events, err)
		}
	})
}

// A handler publishes what its input tells it to, which may come from anybody: it
// wakes nobody of another tenant, and neither does what it published before.
func TestAHandlerReachesNoOtherTenantsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"ask": func(t *enginetest.Task) (any, error) {
				var r *abi.Refusal
				if _, err := t.Wait("from here", "answer", "o-1", 0); !errors.As(err, &r) || r.Code != abi.CodeTimeout {
					return nil, fmt.Errorf("no time: %v", err)
				}
				if err := t.Sleep("nap", time.Hour); err != nil {
					return nil, err
				}
				first, err := t.Wait("first", "answer", "o-1", 24*time.Hour)
				if err != nil {
					return nil, err
				}
				second, err := t.Wait("second", "answer", "o-1", 24*time.Hour)
				if err != nil {
					return nil, err
				}
				return []json.RawMessage{first, second}, nil
			},
			"tell": func(t *enginetest.Task) (any, error) {
				if err := t.Publish("answer", "o-1", "between steps"); err != nil {
					return nil, err
				}
				_, err := t.Step("tell", func() (any, error) { return nil, t.Publish("answer", "o-1", "in a step") })
				return nil, err
			},
		}}
		e := serve(t, g)
		run := func(name, tenant string) string {
			res, err := e.Client().Enqueue(t.Context(), engine.Request{Job: name, Tenant: tenant})
			if err != nil {
				t.Fatal(err)
			}
			return res.ID
		}
		victim := run("ask", "b")
		synctest.Wait()
		ends(t, e, run("tell", "a")) // while it sleeps
		time.Sleep(2 * time.Hour)
		ends(t, e, run("tell", "a")) // while it waits
		synctest.Wait()
		if r, err := e.Client().Get(t.Context(), victim); err != nil || r.State != job.Suspended {
			t.Fatalf("the run of another tenant is %s, %v", r.State, err)
		}
		ends(t, e, run("tell", "b"))
		if r := ends(t, e, victim); r.State != job.Done || string(r.Output) != `["between steps","in a step"]` {
			t.Errorf("the run is %s with %s: %+v", r.State, r.Output, r.Error)
		}
		events, err := e.Client().Events(t.Context(), store.ListEventsParams{Tenant: "a"})
		if err != nil || len(events) != 4 {
			t.Errorf("events %+v, %v", events, err)
		}
	})
}

// A child that is not done in time is cancelled, and its parent goes on without it.
func TestAParentWaitsForAChildNoLongerThanItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"parent": func(t *enginetest.Task) (any, error) {
				results, err := t.Invoke(3,
					abi.EnqueueParams{Job: "child", Input: []byte("1"), TimeoutMS: time.Hour.Milliseconds()},
					abi.EnqueueParams{Job: "child", Input: []byte("100"), TimeoutMS: time.Hour.Milliseconds()},
					abi.EnqueueParams{Job: "child", Input: []byte("100"), TimeoutMS: time.Minute.Milliseconds(), Abandon: true},
				)
				if err != nil {
					return nil, err
				}
				if results[0].Failure != nil || results[1].Failure == nil || results[2].Failure == nil {
					return nil, fmt.Errorf("the children ended with %+v", results)
				}
				return []string{results[1].Failure.Code, results[2].Failure.Code}, nil
			},
			"child": func(t *enginetest.Task) (any, error) {
				var minutes int
				if err := json.Unmarshal(t.Attempt.Input, &minutes); err != nil {
					return nil, err
				}
				return "done", t.Sleep("work", time.Duration(minutes)*time.Minute)
			},
		}}
		e := serve(t, g)
		began := time.Now()
		id := enqueued(t, e, "parent")
		r := ends(t, e, id)
		if r.State != job.Done || string(r.Output) != `["X_CHILD_TIMEOUT","X_CHILD_TIMEOUT"]` {
			t.Fatalf("the parent is %s with %s: %+v", r.State, r.Output, r.Error)
		}
		if d := time.Since(began); d < time.Hour || d > time.Hour+5*time.Minute {
			t.Errorf("it took %v", d)
		}
		runs, err := e.Client().List(t.Context(), store.ListParams{Parent: id})
		if err != nil || len(runs) != 3 {
			t.Fatal(runs, err)
		}
		// The newest is the one that goes on.
		if runs[0].State != job.Suspended || runs[1].State != job.Cancelled || runs[2].State != job.Done {
			t.Errorf("the children are %s, %s, %s", runs[2].State, runs[1].State, runs[0].State)
		}
	})
}

func TestAFanOutKeepsItsLimitAndItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const children, limit = 60, 8
		var live, most, replays atomic.Int64
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"parent": func(t *enginetest.Task) (any, error) {
				replays.Add(1)
				runs := make([]abi.EnqueueParams, children)
				for i := range runs {
					runs[i] = abi.EnqueueParams{Job: "child", Input: fmt.Append(nil, i)}
				}
				results, err := t.Invoke(limit, runs...)
				if err != nil {
					return nil, err
				}
				failed := 0
				for i, r := range results {
					switch {
					case i == 7 && r.Failure != nil && r.Failure.Code == "X_SEVEN" && r.Failure.Message == "not seven":
						failed++
					case r.Failure != nil || string(r.Output) != fmt.Sprint(2*i):
						return nil, fmt.Errorf("child %d ended with %s, %+v", i, r.Output, r.Failure)
					}
				}
				return failed, nil
			},
			"child": func(t *enginetest.Task) (any, error) {
				most.Store(max(most.Load(), live.Add(1)))
				defer live.Add(-1)
				var n int
				if err := json.Unmarshal(t.Attempt.Input, &n); err != nil {
					return nil, err
				}
				t.Work(time.Duration(1+n%5) * time.Second)
				if n == 7 {
					return nil, enginetest.Terminal("X_SEVEN", "not seven")
				}
				return 2 * n, nil
			},
		}}
		e := serve(t, g)
		id := enqueued(t, e, "parent")
		if r := ends(t, e, id); r.State != job.Done || string(r.Output) != "1" || r.Attempt != 1 {
			t.Fatalf("the parent is %s with %s: %+v", r.State, r.Output, r.Error)
		}
		if most.Load() > limit {
			t.Errorf("%d children were live at a time, want at most %d", most.Load(), limit)
		}
		// Woken by quarters of the limit, not by each child.
		if n := replays.Load(); n > children/(limit/4)+3 {
			t.Errorf("the parent was run %d times", n)
		}
	})
}

// A job that invokes itself is refused at a depth, and each run of the chain
// hears of it, down to the first.
func TestAJobThatInvokesItselfEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"parent": func(t *enginetest.Task) (any, error) {
				results, err := t.Invoke(1, abi.EnqueueParams{Job: "parent", Input: []byte("1"), Key: "of " + t.Attempt.Meta.RunID})
				var r *abi.Refusal
				if errors.As(err, &r) {
					if refused++; r.Code != abi.CodeLimit {
						return nil, err
					}
					return 1, nil
				}
				if err != nil || results[0].Failure != nil {
					return nil, fmt.Errorf("%v, %+v", err, results)
				}
				var depth int
				err = json.Unmarshal(results[0].Output, &depth)
				return depth + 1, err
			},
		}}
		e := serve(t, g)
		r := ends(t, e, enqueued(t, e, "parent"))
		if want := fmt.Sprint(abi.MaxInvokeDepth + 1); r.State != job.Done || string(r.Output) != want || refused != 1 {
			t.Errorf("the first run is %s with a depth of %s, want %s, and %d were refused: %+v", r.State, r.Output, want, refused, r.Error)
		}
	})
}

func TestACancelledParentStopsItsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"parent": func(t *enginetest.Task) (any, error) {
				_, err := t.Invoke(9, abi.EnqueueParams{Job: "child", Input: []byte("1")}, abi.EnqueueParams{Job: "child", Input: []byte("2"), Abandon: true})
				return nil, err
			},
			"child": func(t *enginetest.Task) (any, error) { t.Work(5 * time.Minute); return "late", nil },
		}}
		e := serve(t, g)
		id := enqueued(t, e, "parent")
		synctest.Wait()
		if _, err := e.Client().Cancel(t.Context(), id, "enough"); err != nil {
			t.Fatal(err)
		}
		steps, err := e.Client().Steps(t.Context(), id)
		if err != nil || len(steps) != 2 {
			t.Fatalf("%+v, %v", steps, err)
		}
		if r := ends(t, e, steps[0].Child); r.State != job.Cancelled || r.Error.Code != job.CodeCancelled {
			t.Errorf("the child is %s: %+v", r.State, r.Error)
		}
		if r := ends(t, e, steps[1].Child); r.State != job.Done {
			t.Errorf("the abandoned child is %s: %+v", r.State, r.Error)
		}
	})
}

func TestAParentThatFailsForGoodStopsItsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"parent": func(t *enginetest.Task) (any, error) {
				if attempts++; attempts > 1 {
					return nil, enginetest.Terminal("X_NO", "no more")
				}
				_, err := t.Invoke(2, abi.EnqueueParams{Job: "child", Input: []byte("1")}, abi.EnqueueParams{Job: "child", Input: []byte("2")},
					abi.EnqueueParams{Job: "child", Input: []byte("3")})
				return nil, err
			},
			"child": func(t *enginetest.Task) (any, error) {
				if string(t.Attempt.Input) == "2" {
					t.Work(time.Hour)
				}
				return nil, nil
			},
		}}
		e := serve(t, g)
		id := enqueued(t, e, "parent")
		if r := ends(t, e, id); r.State != job.Dead || r.Error.Code != "X_NO" {
			t.Fatalf("the parent is %s: %+v", r.State, r.Error)
		}
		steps, err := e.Client().Steps(t.Context(), id)
		if err != nil || len(steps) != 2 {
			t.Fatalf("%+v, %v", steps, err)
		}
		if r := ends(t, e, steps[1].Child); r.State != job.Cancelled {
			t.Errorf("the child is %s", r.State)
		}
	})
}

func TestWhatIsNoEventIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := serve(t, &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{"a": nil}})
		for _, ev := range []engine.Event{
			{}, {Topic: "a\n"}, {Topic: "t", Key: "\x00"}, {Topic: "t", Payload: []byte("{")}, {Topic: "t", Keep: -1}, {Topic: "t", ID: "x"},
		} {
			_, err := e.Client().Publish(t.Context(), ev)
			if code := abi.CodeOf(err); code != job.CodeInvalid && code != job.CodeIDInvalid {
				t.Errorf("%+v: %v", ev, err)
			}
		}
	})
}
