package engine_test

import (
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

// digest declares a job and schedules of it.
func digest(schedules map[string]string) engine.Deployment {
	g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
		"digest": func(t *enginetest.Task) (any, error) { t.Work(time.Second); return string(t.Attempt.Input), nil },
	}}
	return enginetest.Serve(g, func(m *manifest.Manifest) {
		m.Jobs["digest"].Key = enginetest.Key("digest {day}")
		m.Schedules = map[string]*manifest.Schedule{}
		for name, expr := range schedules {
			spec, err := manifest.ParseCron(expr)
			if err != nil {
				panic(err)
			}
			m.Schedules[name] = &manifest.Schedule{
				Name: name, Spec: spec, Zone: time.UTC, CatchUp: "skip", MaxCatchUp: 10, Overlap: "skip",
				Enqueue: []manifest.ScheduledRun{{Job: "digest", Input: []byte(`{"day":"{occurrence.date}"}`)}},
			}
		}
	})
}

func TestAnEngineFiresItsSchedulesUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		registry := prometheus.NewRegistry()
		e, err := engine.New(engine.Config{Store: db, Deployment: digest(map[string]string{"a": "0 * * * *"}), Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := func() (n int) {
			runs, err := db.List(t.Context(), store.ListParams{State: job.Done})
			if err != nil {
				t.Fatal(err)
			}
			return len(runs)
		}
		time.Sleep(2*time.Hour + 10*time.Minute)
		if n := done(); n != 2 {
			t.Errorf("%d runs are done after two hours", n)
		}
		if _, err := e.Switch(digest(map[string]string{"b": "*/30 * * * *"})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := done(); n != 4 {
			t.Errorf("%d runs are done after another hour of another manifest", n)
		}
		if err := e.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		rows, err := db.ListSchedules(t.Context())
		if err != nil || len(rows) != 2 || rows[0].Holder != "" || rows[1].Holder != "" {
			t.Errorf("after a drain: %+v, %v", rows, err)
		}
		time.Sleep(5 * time.Hour)
		if n := done(); n != 4 {
			t.Errorf("%d runs are done, of an engine that has stopped", n)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		fires := 0.0
		for _, f := range families {
			if f.GetName() == "runner_schedule_fires_total" {
				for _, m := range f.GetMetric() {
					fires += m.GetCounter().GetValue()
				}
			}
		}
		if fires != 4 {
			t.Errorf("%v fires were counted", fires)
		}
	})
}

func TestAnEngineMayLeaveSchedulesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		e, err := engine.New(engine.Config{Store: db, Deployment: digest(map[string]string{"a": "0 * * * *"}), NoSchedules: true})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		if rows, err := db.ListSchedules(t.Context()); len(rows) != 0 || err != nil {
			t.Errorf("rows %+v, %v", rows, err)
		}
	})
}

func TestSchedulesAreListedPausedRunAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		other := func(schedules map[string]string) *engine.Client {
			c, err := engine.NewClient(engine.ClientConfig{Store: db, Manifest: digest(schedules).Manifest})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		gone := other(map[string]string{"gone": "0 * * * *"})
		if _, err := gone.PauseSchedule(engine.WithActor(t.Context(), "ann"), "gone"); err != nil {
			t.Fatal(err)
		}
		c := other(map[string]string{"nightly": "0 3 * * *"})
		all, now, err := c.Schedules(t.Context())
		if err != nil || len(all) != 2 || !now.Equal(time.Now().Truncate(time.Millisecond)) {
			t.Fatalf("%+v, %s, %v", all, now, err)
		}
		if s := all[0]; s.Name != "gone" || s.Declared != nil || !s.Next.IsZero() || s.Row.PausedBy != "ann" {
			t.Errorf("%+v", s)
		}
		if s := all[1]; s.Name != "nightly" || s.Declared == nil || s.Row.Name != "" || !s.Next.Equal(time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC)) {
			t.Errorf("%+v", s)
		}

		for _, name := range []string{"nothing", ""} {
			_, err := c.PauseSchedule(t.Context(), name)
			_, err2 := c.ResumeSchedule(t.Context(), name)
			_, err3 := c.RunSchedule(t.Context(), engine.RunScheduleParams{Name: name})
			for _, err := range []error{err, err2, err3, c.ForgetSchedule(t.Context(), name)} {
				if abi.CodeOf(err) != job.CodeScheduleNotFound {
					t.Errorf("%q: %v", name, err)
				}
			}
		}
		// What others declare can be paused, too.
		if _, err := c.PauseSchedule(t.Context(), "gone"); err != nil {
			t.Error(err)
		}
		if err := c.ForgetSchedule(t.Context(), "gone"); err != nil {
			t.Error(err)
		}

		// A run by hand has its job's own key, and says which day it is for.
		first, err := c.RunSchedule(t.Context(), engine.RunScheduleParams{Name: "nightly", EnqueuedBy: "cli"})
		if err != nil || len(first) != 1 || first[0].Deduped {
			t.Fatalf("%+v, %v", first, err)
		}
		again, err := c.RunSchedule(t.Context(), engine.RunScheduleParams{Name: "nightly"})
		if err != nil || !again[0].Deduped || again[0].ID != first[0].ID {
			t.Errorf("%+v, %v", again, err)
		}
		old, err := c.RunSchedule(t.Context(), engine.RunScheduleParams{Name: "nightly", Occurrence: time.Date(1999, 12, 24, 3, 0, 0, 0, time.UTC)})
		if err != nil || old[0].Deduped {
			t.Fatalf("%+v, %v", old, err)
		}
		a, _ := db.Get(t.Context(), first[0].ID)
		b, _ := db.Get(t.Context(), old[0].ID)
		if a.Key != "digest 2000-01-01" || a.EnqueuedBy != "cli" || b.Key != "digest 1999-12-24" || string(b.Input) != `{"day":"1999-12-24"}` {
			t.Errorf("%+v\n%+v", a, b)
		}
	})
}
