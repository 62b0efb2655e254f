package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
)

func do(t *testing.T, c *engine.Client, jobName string) engine.Result {
	t.Helper()
	res, err := c.Enqueue(t.Context(), engine.Request{Job: jobName})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func follow(t *testing.T, c *engine.Client, id string) job.Run {
	t.Helper()
	run, err := c.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func TestAWaiterHearsOfARunOfItsProcessAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := serve(t, &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"j": func(t *enginetest.Task) (any, error) { t.Work(9 * time.Minute); return 1, nil },
		}})
		id := do(t, e.Client(), "j").ID
		run := follow(t, e.Client(), id)
		if late := time.Since(run.FinishedAt); run.State != job.Done || late > 10*time.Millisecond {
			t.Errorf("heard of %s after %v", run.State, late)
		}
	})
}

func TestAClientWithoutAWorkerEnqueuesFollowsAndCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"j": func(t *enginetest.Task) (any, error) { t.Work(time.Minute); return 1, nil },
		}}
		c, err := engine.NewClient(engine.ClientConfig{Store: db, Manifest: enginetest.Serve(g, nil).Manifest})
		if err != nil {
			t.Fatal(err)
		}
		id := do(t, c, "j").ID
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if run, err := c.Wait(impatient, id); !errors.Is(err, context.DeadlineExceeded) || run.State != job.Ready {
			t.Errorf("nobody runs it, yet %s, %v", run.State, err)
		}
		e, err := engine.New(engine.Config{Store: db, Deployment: enginetest.Serve(g, nil)})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		run := follow(t, c, id)
		if late := time.Since(run.FinishedAt); run.State != job.Done || late > 2*time.Second {
			t.Errorf("heard of %s after %v", run.State, late)
		}
		second := do(t, c, "j").ID
		if run, err := c.Cancel(t.Context(), second, "enough"); err != nil || run.State != job.Cancelled {
			t.Errorf("cancelled: %s, %v", run.State, err)
		}
		if run := follow(t, c, second); run.State != job.Cancelled || run.Error.Message != "enough" {
			t.Errorf("ended %+v", run)
		}
		if _, err := c.Wait(t.Context(), "01890a5d-ac96-774b-bcce-b302099a8057"); abi.CodeOf(err) != job.CodeNotFound {
			t.Errorf("waiting for nobody: %v", err)
		}
	})
}

func TestACancelThroughTheClientStopsItsOwnProcessAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"j": func(t *enginetest.Task) (any, error) { t.Work(9 * time.Minute); return 1, nil },
		}}
		e := serve(t, g)
		id := do(t, e.Client(), "j").ID
		for g.Running() == 0 {
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		if _, err := e.Client().Cancel(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
		run := follow(t, e.Client(), id)
		synctest.Wait()
		if g.Running() != 0 || run.State != job.Cancelled || time.Since(began) > time.Second {
			t.Errorf("%d attempts run after %v, the run is %s", g.Running(), time.Since(began), run.State)
		}
	})
}

func TestARetryFromAStepRunsItAndTheLaterOnesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := map[string]int{}
		e := serve(t, &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"j": func(t *enginetest.Task) (any, error) {
				for _, name := range []string{"a", "b", "c"} {
					if _, err := t.Step(name, func() (any, error) { bodies[name]++; return bodies[name], nil }); err != nil {
						return nil, err
					}
				}
				return bodies, nil
			},
		}})
		c := e.Client()
		id := do(t, c, "j").ID
		follow(t, c, id)
		if _, err := c.Retry(t.Context(), store.RequeueParams{ID: id, FromStep: "b"}); err != nil {
			t.Fatal(err)
		}
		run := follow(t, c, id)
		if run.State != job.Done || bodies["a"] != 1 || bodies["b"] != 2 || bodies["c"] != 2 {
			t.Errorf("%s after bodies %v", run.State, bodies)
		}
		steps, err := c.Steps(t.Context(), id)
		if err != nil || len(steps) != 3 {
			t.Errorf("steps %+v, %v", steps, err)
		}
	})
}

func TestADeadRunRetriedReplaysWhatItHadDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies, broken := 0, true
		e := serve(t, &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"j": func(t *enginetest.Task) (any, error) {
				v, err := t.Step("a", func() (any, error) { bodies++; return bodies, nil })
				if err == nil && broken {
					err = enginetest.Terminal("X_BROKEN", "not yet")
				}
				return v, err
			},
		}})
		c := e.Client()
		id := do(t, c, "j").ID
		if run := follow(t, c, id); run.State != job.Dead {
			t.Fatalf("the run is %s", run.State)
		}
		broken = false
		if _, err := c.Retry(t.Context(), store.RequeueParams{ID: id}); err != nil {
			t.Fatal(err)
		}
		run := follow(t, c, id)
		attempts, err := c.Attempts(t.Context(), id)
		if run.State != job.Done || bodies != 1 || err != nil || len(attempts) == 0 || attempts[0].Outcome != job.DeadLettered {
			t.Errorf("%s after %d bodies, timeline %+v, %v", run.State, bodies, attempts, err)
		}
	})
}

func TestASwitchChangesJobsAndQueuesWithoutARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := func(v string) enginetest.Handler {
			return func(*enginetest.Task) (any, error) { return v, nil }
		}
		e := serve(t, &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{"j": answer("v1")}})
		if out := follow(t, e.Client(), do(t, e.Client(), "j").ID).Output; string(out) != `"v1"` {
			t.Errorf("output %s", out)
		}
		_, err := e.Switch(enginetest.Serve(&enginetest.Guest{Name: "v2", Handlers: map[string]enginetest.Handler{"k": answer("v2")}}, func(m *manifest.Manifest) {
			m.Queues["fresh"] = manifest.Queue{Name: "fresh", Workers: 1}
			m.Jobs["k"].Queue = "fresh"
		}))
		if err != nil {
			t.Fatal(err)
		}
		if out := follow(t, e.Client(), do(t, e.Client(), "k").ID).Output; string(out) != `"v2"` {
			t.Errorf("output %s", out)
		}
		if _, err := e.Client().Enqueue(t.Context(), engine.Request{Job: "j"}); abi.CodeOf(err) != job.CodeUnknownJob {
			t.Errorf("a job that is not declared any more: %v", err)
		}
	})
}

func TestDrainTakesTheEarlierOfItsBudgetAndItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"j": func(t *enginetest.Task) (any, error) { t.Work(9 * time.Minute); return 1, nil },
		}}
		for _, c := range []struct{ budget, ctx, least, most time.Duration }{
			{10 * time.Second, time.Hour, 7 * time.Second, 10 * time.Second},
			{time.Hour, 10 * time.Second, 7 * time.Second, 10 * time.Second},
		} {
			e, err := engine.New(engine.Config{Store: enginetest.Memory(t), Deployment: enginetest.Serve(g, nil), Drain: c.budget})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			id := do(t, e.Client(), "j").ID
			for g.Running() == 0 {
				time.Sleep(time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
			began := time.Now()
			if err := e.Drain(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			if took := time.Since(began); took < c.least || took > c.most {
				t.Errorf("a drain of %v under a context of %v took %v", c.budget, c.ctx, took)
			}
			if run, err := e.Client().Get(t.Context(), id); err != nil || run.State != job.Ready || run.Attempt != 0 {
				t.Errorf("the run is %s at attempt %d, %v", run.State, run.Attempt, err)
			}
		}
	})
}

func TestCloseClosesTheGuestsAndMayBeRepeated(t *testing.T) {
	var closed []abi.Guest
	g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{"j": nil}}
	e, err := engine.New(engine.Config{
		Store: enginetest.Memory(t), Deployment: enginetest.Serve(g, nil),
		CloseGuest: func(g abi.Guest) { closed = append(closed, g) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(closed) != 1 || closed[0] != abi.Guest(g) {
		t.Errorf("closed %v", closed)
	}
}

func TestAnEngineIsRefusedWhatItCannotServe(t *testing.T) {
	g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{"j": nil}}
	good := enginetest.Serve(g, nil)
	for name, c := range map[string]struct {
		cfg  engine.Config
		code string
	}{
		"no store":      {engine.Config{Deployment: good}, job.CodeInvalid},
		"no deployment": {engine.Config{Store: enginetest.Memory(t)}, job.CodeInvalid},
		"no handler": {engine.Config{Store: enginetest.Memory(t), Deployment: enginetest.Serve(g, func(m *manifest.Manifest) {
			m.Jobs["j"].Handler = "gone"
		})}, job.CodeModuleMissing},
		"lease too short": {engine.Config{Store: enginetest.Memory(t), Deployment: good, Lease: time.Millisecond}, job.CodeInvalid},
	} {
		if _, err := engine.New(c.cfg); abi.CodeOf(err) != c.code {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if _, err := engine.NewClient(engine.ClientConfig{}); abi.CodeOf(err) != job.CodeInvalid {
		t.Errorf("a client of nothing: %v", err)
	}
}

func TestTheEngineCountsWhatItDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		e, err := engine.New(engine.Config{
			Store: enginetest.Memory(t), Registerer: registry,
			Deployment: enginetest.Serve(&enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
				"j": func(t *enginetest.Task) (any, error) { return t.Step("a", func() (any, error) { return 1, nil }) },
			}}, nil),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		follow(t, e.Client(), do(t, e.Client(), "j").ID)
		time.Sleep(time.Minute)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, f := range families {
			got[f.GetName()] = true
		}
		for _, want := range []string{
			"runner_queue_depth", "runner_queue_oldest_due_seconds", "runner_queue_dead_jobs", "runner_jobs_total",
			"runner_attempt_duration_seconds", "runner_steps_total", "runner_batch_size", "runner_enqueue_total",
			"runner_worker_slots", "runner_worker_slots_busy",
		} {
			if !got[want] {
				t.Errorf("%s is not among what was gathered", want)
			}
		}
	})
}
