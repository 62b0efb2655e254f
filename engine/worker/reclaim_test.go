package worker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/worker"
)

func TestARunThatKillsItsWorkersIsBuriedAfterThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, policy(func(p *job.RetryPolicy) { p.Attempts = 10 }))
		poison := r.enqueue("j")
		// Workers that claim it and die, beside one that only sweeps.
		r.work(func(c *worker.Config) { c.Queues = []string{"other"} })
		for _, id := range []string{"w1", "w2", "w3"} {
			if runs := r.claimBy(id); len(runs) != 1 {
				t.Fatalf("worker %s claimed %d runs", id, len(runs))
			}
			time.Sleep(45 * time.Second)
		}
		run := r.get(poison)
		r.ended(run, job.Dead, job.CodeWorkerLost, 3)
		if run.Orphans != 3 {
			t.Errorf("orphans %d", run.Orphans)
		}
		r.logged("jobs.reclaim.requeued", 2)
		r.logged("jobs.claim.exhausted", 1)
		innocent := r.enqueue("j")
		r.work(nil)
		r.ended(r.settles(innocent), job.Done, "", 1)
	})
}

func TestALeaseThatLapsesOnTheLastAttemptBuriesTheRun(t *testing.T) {
	for _, keep := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, handlers{"j": nil}, policy(func(p *job.RetryPolicy) { p.Attempts, p.DeadLetter = 1, keep }))
			id := r.enqueue("j")
			r.claimBy("w1")
			r.work(nil)
			time.Sleep(time.Minute)
			want := job.Dead
			if !keep {
				want = job.Failed
			}
			r.ended(r.get(id), want, job.CodeMaxAttempts, 1)
		})
	}
}

func TestAloneTakesOverWhatThePredecessorHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, nil)
		id := r.enqueue("j")
		r.claimBy("killed a moment ago")
		began := time.Now()
		r.work(func(c *worker.Config) { c.Alone = true })
		run := r.settles(id)
		r.ended(run, job.Done, "", 2)
		if took := run.FinishedAt.Sub(began); took > time.Second {
			t.Errorf("taken over after %v", took)
		}
	})
}

func TestFinishedRunsArePurgedAfterTheirRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{"j": func(*task) (any, error) { return nil, nil }}, func(m *manifest.Manifest) {
			m.Jobs["j"].Retention = time.Hour
		})
		r.work(nil)
		id := r.enqueue("j")
		r.settles(id)
		time.Sleep(59 * time.Minute)
		r.get(id)
		time.Sleep(3 * time.Minute)
		if _, err := r.db.Get(t.Context(), id); abi.CodeOf(err) != job.CodeNotFound {
			t.Errorf("after its retention: %v", err)
		}
	})
}
