package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// tally counts who is in a handler at a time.
type tally struct {
	mu   sync.Mutex
	now  map[string]int
	most map[string]int
}

func newTally() *tally { return &tally{now: map[string]int{}, most: map[string]int{}} }

func (c *tally) in(name string) (out func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[name]++
	c.most[name] = max(c.most[name], c.now[name])
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now[name]--
	}
}

// reset answers the most that ran at a time since the last reset.
func (c *tally) reset(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.most[name]
	c.most[name] = 0
	return most
}

func (r *rig) enqueueFor(jobName, tenant, input string) string {
	r.Helper()
	res, err := r.queue.Enqueue(r.Context(), queue.Request{Job: jobName, Tenant: tenant, Input: []byte(input)})
	r.must(err)
	return res.ID
}

// What is declared is kept by two workers together, and what waits for it goes
// without waiting for a poll.
func TestLimitsHoldOverAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := newTally()
		work := func(name func(*task) string) enginetest.Handler {
			return func(t *task) (any, error) {
				defer counts.in(name(t))()
				t.Work(100 * time.Millisecond)
				return nil, nil
			}
		}
		r := newRig(t, handlers{
			"plain": work(func(*task) string { return "plain" }),
			"keyed": work(func(t *task) string { return "keyed " + string(t.Attempt.Input) }),
			"share": work(func(t *task) string { return "tenant " + t.Attempt.Meta.Tenant }),
		}, func(m *manifest.Manifest) {
			m.Jobs["plain"].Concurrency = manifest.Concurrency{Limit: 3}
			m.Jobs["keyed"].Concurrency = manifest.Concurrency{Limit: 1, Keyed: true, Key: limitKey("{k}")}
			m.Jobs["share"].Queue = "shared"
			m.Queues["shared"] = manifest.Queue{Name: "shared", Workers: 10, PerTenant: 2}
		})
		var last []string
		for i := range 30 {
			last = []string{
				r.enqueue("plain"), r.enqueueFor("keyed", "", fmt.Sprintf(`{"k":"%d"}`, i%3)),
				r.enqueueFor("share", fmt.Sprint("t", i%3), "{}"),
			}
		}
		began := time.Now()
		r.work(nil)
		r.work(nil)
		for _, id := range last {
			r.ended(r.settles(id), job.Done, "", 1)
		}
		for name, n := range counts.most {
			want := 1
			switch {
			case name == "plain":
				want = 3
			case strings.HasPrefix(name, "tenant"):
				want = 2
			}
			if n != want {
				t.Errorf("%d of %s ran at a time, want %d", n, name, want)
			}
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("30 runs of 100ms, three at a time, took %v: a poll was waited for", took)
		}
	})
}

func limitKey(source string) manifest.Template {
	t, err := manifest.ParseLimitKey(source)
	if err != nil {
		panic(err)
	}
	return t
}

func TestLimitsOfAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := newTally()
		work := func(t *task) (any, error) {
			defer counts.in("all")()
			defer counts.in("tenant " + t.Attempt.Meta.Tenant)()
			t.Work(100 * time.Millisecond)
			return nil, nil
		}
		r := newRig(t, handlers{"a": work, "b": work}, func(m *manifest.Manifest) {
			m.Runner.Workers = 4
			m.Queues["default"] = manifest.Queue{Name: "default", Workers: 10, TenantWorkers: 2}
			m.Queues["other"] = manifest.Queue{Name: "other", Workers: 10, TenantWorkers: 2}
			m.Jobs["b"].Queue = "other"
		})
		var ids []string
		for i := range 20 {
			ids = append(ids, r.enqueueFor("a", "x", "{}"), r.enqueueFor("b", fmt.Sprint("y", i%4), "{}"))
		}
		r.work(nil)
		for _, id := range ids {
			r.ended(r.settles(id), job.Done, "", 1)
		}
		if counts.most["all"] != 4 || counts.most["tenant x"] != 2 {
			t.Errorf("ran at a time: %v; want 4 in all and 2 of tenant x", counts.most)
		}
	})
}

// What began before a deploy limited it counts towards the limit, and its end
// takes nothing from the count of those that began after. (L1)
func TestALimitOfAProcessThatADeployBringsCountsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := newTally()
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			defer counts.in("j")()
			t.Work(time.Duration(t.Attempt.Input[0]-'0') * time.Minute)
			return nil, nil
		}}, nil)
		enqueue := func(minutes ...int) (ids []string) {
			for _, n := range minutes {
				ids = append(ids, r.enqueueFor("j", "x", fmt.Sprint(n)))
			}
			return ids
		}
		long := enqueue(1, 2, 3)
		w := r.work(nil)
		for _, id := range long {
			r.reaches(id, job.Running)
		}
		next := *r.deploy.Manifest()
		next.Queues = map[string]manifest.Queue{"default": {Name: "default", Workers: 10, TenantWorkers: 1}}
		w.Configure(&next)
		later := enqueue(2, 2, 2)
		for _, id := range long {
			r.ended(r.settles(id), job.Done, "", 1)
		}
		counts.reset("j")
		for _, id := range later {
			r.ended(r.settles(id), job.Done, "", 1)
		}
		if most := counts.reset("j"); most != 1 {
			t.Errorf("%d ran at a time after the deploy, want 1", most)
		}
	})
}

// (F12, F14)
func TestARunThatFindsItsKeyHeldFailsWithoutHavingBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) { t.Work(time.Minute); return nil, nil }}, func(m *manifest.Manifest) {
			m.Jobs["j"].Concurrency = manifest.Concurrency{Limit: 1, Keyed: true, Key: limitKey("{k}"), Fail: true}
		})
		first := r.enqueueFor("j", "", `{"k":1}`)
		r.work(nil)
		r.reaches(first, job.Running)
		second, other := r.enqueueFor("j", "", `{"k":1}`), r.enqueueFor("j", "", `{"k":2}`)
		run := r.settles(second)
		r.ended(run, job.Failed, job.CodeKeyBusy, 0)
		if !strings.Contains(run.Error.Message, first) || run.Error.Fix == "" {
			t.Errorf("the refusal does not name the holder %s: %+v", first, run.Error)
		}
		r.ended(r.settles(other), job.Done, "", 1)
		r.ended(r.settles(first), job.Done, "", 1)
		if n := r.guest.Started(); n != 2 {
			t.Errorf("%d attempts began, want 2", n)
		}
		third := r.enqueueFor("j", "", `{"k":1}`)
		r.ended(r.settles(third), job.Done, "", 1)
		recs, err := r.db.Store.Attempts(t.Context(), second)
		if err != nil || len(recs) != 1 || recs[0].Outcome != job.Refused {
			t.Errorf("its timeline is %+v, %v", recs, err)
		}
	})
}

// A run whose job was moved to another queue by a deploy is held to its limits in
// the queue that it was left in.
func TestALimitedRunInAnotherQueueIsHeldToItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := newTally()
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			defer counts.in("j")()
			t.Work(100 * time.Millisecond)
			return nil, nil
		}}, func(m *manifest.Manifest) {
			m.Jobs["j"].Queue = "new"
			m.Queues["new"] = manifest.Queue{Name: "new", Workers: 10}
			m.Jobs["j"].Concurrency = manifest.Concurrency{Limit: 1}
		})
		var batch []store.EnqueueParams
		for i := range 10 {
			batch = append(batch, store.EnqueueParams{
				ID: fmt.Sprintf("01970000-0000-7000-8000-%012x", i), Job: "j", Queue: "default", Input: []byte("{}"), MaxAttempts: 3,
			})
		}
		_, err := r.db.Store.Enqueue(t.Context(), batch)
		r.must(err)
		r.work(nil)
		for _, p := range batch {
			r.ended(r.settles(p.ID), job.Done, "", 1)
		}
		if counts.most["j"] != 1 {
			t.Errorf("%d ran at a time, want 1", counts.most["j"])
		}
	})
}

func TestARateSpacesStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var starts []time.Time
		r := newRig(t, handlers{"j": func(*task) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Now())
			return nil, nil
		}}, func(m *manifest.Manifest) {
			m.Queues["default"] = manifest.Queue{Name: "default", Workers: 10, Rate: &manifest.Rate{Limit: 5, Per: 10 * time.Second, By: "queue"}}
		})
		var last string
		for range 15 {
			last = r.enqueue("j")
		}
		first := r.work(nil)
		time.Sleep(5 * time.Second)
		first.Stop()
		r.work(nil) // nothing is lost or given away by a restart
		r.ended(r.settles(last), job.Done, "", 1)
		for i := range starts {
			if j := i + 5; j < len(starts) {
				if d := starts[j].Sub(starts[i]); d < 2*time.Second {
					t.Errorf("start %d came %v after start %d", j, d, i)
				}
			}
		}
		if took := starts[len(starts)-1].Sub(starts[0]); took < 20*time.Second || took > 26*time.Second {
			t.Errorf("15 starts at 5 in 10s took %v", took)
		}
	})
}

func TestARunThatWaitsLongGoesBeforePriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		h := func(name string) enginetest.Handler {
			return func(t *task) (any, error) {
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				t.Work(10 * time.Second)
				return nil, nil
			}
		}
		r := newRig(t, handlers{"low": h("low"), "high": h("high")}, func(m *manifest.Manifest) {
			m.Jobs["low"].Priority, m.Jobs["high"].Priority = 50, -50
			m.Queues["default"] = manifest.Queue{Name: "default", Workers: 1, AgeAfter: time.Minute}
		})
		low := r.enqueue("low")
		for range 30 {
			r.enqueue("high")
		}
		r.work(nil)
		done := r.settles(low)
		if waited := done.StartedAt.Sub(done.CreatedAt); waited > 100*time.Second {
			t.Errorf("it waited %v, %d runs went before it", waited, len(order))
		}
		if order[0] != "high" {
			t.Error("it went first")
		}
	})
}

// ends notes what the ends of attempts say of wakes.
type ends struct {
	store.Store
	mu    sync.Mutex
	wakes []string
}

func (e *ends) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	e.mu.Lock()
	for _, p := range batch {
		e.wakes = append(e.wakes, p.Wake)
	}
	e.mu.Unlock()
	return e.Store.Settle(ctx, batch)
}

// A worker that drains does not take the place that its run leaves, so others are
// told of it; one that goes on looks itself.
func TestADrainTellsOthersOfThePlacesItFrees(t *testing.T) {
	for _, limited := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, lasts(5*time.Second), func(m *manifest.Manifest) {
				if limited {
					m.Jobs["j"].Concurrency = manifest.Concurrency{Limit: 1}
				}
			})
			e := &ends{Store: r.db.Store}
			r.db.Store = e
			w := r.work(nil)
			r.settles(r.enqueue("j"))
			r.reaches(r.enqueue("j"), job.Running)
			w.Drain(25 * time.Second)
			want := []string{"", ""}
			if limited {
				want[1] = "default"
			}
			if !slices.Equal(e.wakes, want) {
				t.Errorf("limited %v: the ends wake %q, want %q", limited, e.wakes, want)
			}
		})
	}
}
