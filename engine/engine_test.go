package engine_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store/sqlite"
)

// serve starts an engine over a database in memory and ends both with the test.
func serve(t *testing.T, g *enginetest.Guest) *engine.Engine {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: sqlite.Memory, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Store: db, Deployment: enginetest.Serve(g, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestARunThatSleepsAndFailsOnceEndsDoneWithItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := 0
		g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{
			"welcome": func(t *enginetest.Task) (any, error) {
				user, err := t.Step("create", func() (any, error) { bodies++; return "u1", nil })
				if err != nil {
					return nil, err
				}
				if err := t.Sleep("a day", 24*time.Hour); err != nil {
					return nil, err
				}
				if t.Attempt.Meta.Attempt == 1 {
					return nil, context.DeadlineExceeded // any error: tried again
				}
				return map[string]any{"user": user, "slept": t.Now.Sub(t.Attempt.Now) >= 24*time.Hour}, nil
			},
		}}
		e := serve(t, g)
		began := time.Now()
		run, err := e.Client().Enqueue(t.Context(), engine.Request{Job: "welcome", Input: []byte(`{"a":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		done, err := e.Client().Wait(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		var out struct {
			User  string
			Slept bool
		}
		if err := json.Unmarshal(done.Output, &out); err != nil {
			t.Fatal(err)
		}
		if done.State != job.Done || out.User != "u1" || !out.Slept || bodies != 1 {
			t.Errorf("state %s, output %s, %d bodies", done.State, done.Output, bodies)
		}
		if took := time.Since(began); took < 24*time.Hour+time.Second || took > 24*time.Hour+2*time.Second {
			t.Errorf("it took %v, want a day for the sleep and a second for the retry", took)
		}
		if done.Attempt != 2 || done.Claims != 3 {
			t.Errorf("attempt %d, claims %d; want the second attempt and the third claim", done.Attempt, done.Claims)
		}
	})
}
