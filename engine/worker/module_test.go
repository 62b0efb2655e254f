package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/deploy"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/worker"
)

func TestAHandlerThatTakesAnotherPathIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			if _, err := t.Step(fmt.Sprint("attempt ", t.Attempt.Meta.Attempt), func() (any, error) { return 1, nil }); err != nil {
				return nil, err
			}
			return nil, errors.New("again")
		}}, nil)
		r.work(nil)
		run := r.settles(r.enqueue("j"))
		r.ended(run, job.Dead, job.CodeReplayDiverged, 2)
		for _, want := range []string{`"attempt 1"`, `"attempt 2"`} {
			if !strings.Contains(run.Error.Message, want) {
				t.Errorf("%q does not name %s", run.Error.Message, want)
			}
		}
	})
}

// Nor may it leave out what it recorded, and call that an end.
func TestAHandlerThatReturnsWithoutItsRecordsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(t *task) (any, error) {
			if t.Attempt.Meta.Attempt > 1 {
				return "all well", nil
			}
			if _, err := t.Step("charge", func() (any, error) { return 1, nil }); err != nil {
				return nil, err
			}
			return nil, errors.New("again")
		}}, nil)
		r.work(nil)
		run := r.settles(r.enqueue("j"))
		r.ended(run, job.Dead, job.CodeReplayDiverged, 2)
		if !strings.Contains(run.Error.Message, `"charge"`) {
			t.Errorf("%q does not name the step", run.Error.Message)
		}
	})
}

func TestAStartedRunStaysOnItsModuleAndANewOneTakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version := func(v string) enginetest.Handler {
			return func(t *task) (any, error) {
				if _, err := t.Step("one", func() (any, error) { return 1, nil }); err != nil {
					return nil, err
				}
				return v, t.Sleep("a day", 24*time.Hour)
			}
		}
		r := newRig(t, handlers{"j": version("v1")}, nil)
		r.work(nil)
		old := r.enqueue("j")
		r.reaches(old, job.Suspended)
		_, err := r.deploy.Switch(enginetest.Serve(&enginetest.Guest{Name: "v2", Handlers: handlers{"j": version("v2")}}, nil))
		r.must(err)
		fresh := r.enqueue("j")
		if out := r.settles(old).Output; string(out) != `"v1"` {
			t.Errorf("the started run ended with %s", out)
		}
		if out := r.settles(fresh).Output; string(out) != `"v2"` {
			t.Errorf("the new run ended with %s", out)
		}
	})
}

func TestARunPinnedToAModuleThatIsGoneWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nap := handlers{"j": func(t *task) (any, error) { return "woke", t.Sleep("nap", time.Minute) }}
		r := newRig(t, nap, nil)
		w := r.work(nil)
		id := r.enqueue("j")
		r.reaches(id, job.Suspended)
		w.Stop()

		var here atomic.Bool
		v2 := &enginetest.Guest{Name: "v2", Handlers: nap}
		d, err := deploy.New(deploy.Config{Loader: func(context.Context, manifest.Module, string) (abi.Guest, error) {
			if here.Load() {
				return r.guest, nil
			}
			return nil, errors.New("no such file")
		}}, enginetest.Serve(v2, nil))
		r.must(err)
		r.work(func(c *worker.Config) { c.Deploy = d })
		time.Sleep(5 * time.Minute)
		run := r.get(id)
		r.ended(run, job.Delayed, job.CodeModuleMissing, 0)
		r.logged("jobs.worker.parked", 1)
		here.Store(true)
		if out := r.settles(id).Output; string(out) != `"woke"` {
			t.Errorf("it ended with %s", out)
		}
	})
}
