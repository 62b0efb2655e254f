package queue_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

func TestEnqueueThroughWritesAllAtOnceOrNothing(t *testing.T) {
	q, db := open(t)
	calls := 0
	insert := func(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
		calls++
		return db.Store.Enqueue(ctx, batch)
	}
	many := make([]queue.Request, queue.MaxEnqueue)
	for i := range many {
		many[i].Job = "free"
	}
	res, err := q.EnqueueThrough(t.Context(), many, insert)
	if err != nil || len(res) != len(many) || calls != 1 {
		t.Fatalf("%d results in %d writes, %v", len(res), calls, err)
	}
	_, err = q.EnqueueThrough(t.Context(), append(many, queue.Request{Job: "free"}), insert)
	code(t, err, job.CodeInvalid)
	_, err = q.EnqueueThrough(t.Context(), []queue.Request{{Job: "free"}, {Job: "gone"}}, insert)
	code(t, err, job.CodeUnknownJob)
	if calls != 1 {
		t.Errorf("a refused batch was written")
	}
	if res, err := q.EnqueueThrough(t.Context(), nil, insert); err != nil || res == nil || len(res) != 0 || calls != 1 {
		t.Errorf("nothing: %v, %v", res, err)
	}
}

func TestEnqueueThroughRepeatsNothing(t *testing.T) {
	q, _ := open(t)
	calls := 0
	_, err := q.EnqueueThrough(t.Context(), []queue.Request{{Job: "free"}}, func(context.Context, []store.EnqueueParams) ([]store.EnqueueResult, error) {
		calls++
		return nil, store.ErrUnknown
	})
	if !errors.Is(err, store.ErrUnknown) || calls != 1 {
		t.Errorf("%v after %d writes: a transaction that failed cannot be written to again", err, calls)
	}
}

func TestEnqueueThroughSaysWhenAKeyIsHeld(t *testing.T) {
	q, db := open(t)
	held, err := q.Enqueue(t.Context(), queue.Request{Job: "keyed", Input: []byte(`{"id":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	again := queue.Request{Job: "keyed", Input: []byte(`{"id":1}`)}
	res, err := q.EnqueueThrough(t.Context(), []queue.Request{again}, db.Enqueue)
	if err != nil || res[0].ID != held.ID || !res[0].Deduped {
		t.Errorf("%+v, %v", res, err)
	}
	again.OnConflict = queue.Fail
	_, err = q.EnqueueThrough(t.Context(), []queue.Request{again}, db.Enqueue)
	code(t, err, job.CodeDuplicate)
}

func TestTheLargestBatchIsTenWrites(t *testing.T) {
	q, db := open(t)
	many := make([]queue.Request, queue.MaxEnqueue)
	for i := range many {
		many[i].Job = "free"
	}
	res, err := q.EnqueueMany(t.Context(), many)
	if err != nil || len(res) != len(many) {
		t.Fatalf("%d results, %v", len(res), err)
	}
	if n := db.Count("Enqueue"); n != 10 {
		t.Errorf("%d writes for %d runs, want 10", n, len(many))
	}
}
