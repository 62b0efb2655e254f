package queue_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
)

// A store that is slow is not away: a batch takes as long as its writes do.
func TestABatchIsNotGivenUpWhileTheStoreMakesHeadway(t *testing.T) {
	for _, conflict := range []queue.OnConflict{queue.Dedupe, queue.Fail} {
		synctest.Test(t, func(t *testing.T) {
			q, db := open(t)
			db.Between = func(_ context.Context, op string, call func() error) error {
				if op == "Enqueue" || op == "EnqueueIf" {
					time.Sleep(10 * time.Second)
				}
				return call()
			}
			many := make([]queue.Request, 3000)
			for i := range many {
				many[i] = queue.Request{Job: "free", OnConflict: conflict}
			}
			if res, err := q.EnqueueMany(t.Context(), many); err != nil || len(res) != len(many) {
				t.Errorf("%d results, %v", len(res), err)
			}
		})
	}
}

// One that is away is given up, and so is one whose caller has left.
func TestABatchIsGivenUpWhenTheStoreStaysAwayOrItsCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, db := open(t)
		db.Between = func(context.Context, string, func() error) error { return enginetest.Away() }
		began := time.Now()
		_, err := q.EnqueueMany(t.Context(), []queue.Request{{Job: "free"}})
		code(t, err, job.CodeDatabaseUnavailable)
		if took := time.Since(began); took < 5*time.Second || took > 10*time.Second {
			t.Errorf("it was given up after %v", took)
		}
		db.Between = func(_ context.Context, _ string, call func() error) error {
			time.Sleep(10 * time.Second)
			return call()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := q.EnqueueMany(ctx, []queue.Request{{Job: "free"}}); err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v, want an error when the caller leaves", err, time.Since(began))
		}
		time.Sleep(time.Minute) // the write ends
	})
}

// What was written before a store failed is answered with its error.
func TestABatchThatFailsHalfwayAnswersWhatIsIn(t *testing.T) {
	q, db := open(t)
	db.Between = func(_ context.Context, op string, call func() error) error {
		if op == "Enqueue" && db.Count(op) == 3 {
			return enginetest.Broken()
		}
		return call()
	}
	many := make([]queue.Request, 3000)
	for i := range many {
		many[i] = queue.Request{Job: "free"}
	}
	res, err := q.EnqueueMany(t.Context(), many)
	code(t, err, job.CodeDatabaseCorrupt)
	if len(res) != 2000 || !strings.Contains(err.Error(), "after 2000 of 3000 runs") {
		t.Fatalf("%d answers, %v", len(res), err)
	}
	for _, r := range res {
		if _, err := q.Get(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
	}
	// Of one write, all or nothing is in.
	db.Between = func(context.Context, string, func() error) error { return enginetest.Broken() }
	if res, err := q.EnqueueMany(t.Context(), many[:10]); err == nil || len(res) != 0 {
		t.Errorf("%d answers, %v", len(res), err)
	}
}
