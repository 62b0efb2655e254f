package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// id is a canonical UUID; a higher n sorts later.
func id(n int) string { return fmt.Sprintf("01970000-0000-7000-8000-%012x", n) }

// free are n requests with ids from 0.
func free(n int) []queue.Request {
	out := make([]queue.Request, n)
	for i := range out {
		out[i] = queue.Request{Job: "free", ID: id(i), Input: fmt.Append(nil, i)}
	}
	return out
}

func TestEachRefusesTheBadAndInsertsTheOthers(t *testing.T) {
	q, db := open(t)
	requests := free(6)
	requests[1].Job = "nobody"
	requests[2] = queue.Request{Job: "tenant", ID: id(2), Tenant: "a", Input: []byte(`{"org":"b","id":1}`)}
	requests[4].Input = []byte(`{`)
	verdicts, err := q.EnqueueEach(t.Context(), requests)
	if err != nil || len(verdicts) != 6 {
		t.Fatal(verdicts, err)
	}
	want := map[int]string{1: job.CodeUnknownJob, 2: job.CodeTenantMismatch, 4: job.CodeInputInvalid}
	for i, v := range verdicts {
		if got := abi.CodeOf(v.Refused); got != want[i] {
			t.Errorf("entry %d: refused with %q, want %q", i, got, want[i])
		}
		r, err := db.Get(t.Context(), id(i))
		if want[i] != "" {
			code(t, err, job.CodeNotFound)
			continue
		}
		if err != nil || v.ID != id(i) || v.Deduped || string(r.Input) != fmt.Sprint(i) {
			t.Errorf("entry %d: %+v %v", i, v, err)
		}
	}
	if n := db.Count("Enqueue"); n != 1 {
		t.Errorf("the good ones took %d writes", n)
	}
	// Repeated, it inserts nothing and says so.
	again, err := q.EnqueueEach(t.Context(), requests)
	if err != nil || !again[0].Deduped || again[0].ID != id(0) || again[0].State != job.Ready {
		t.Errorf("repeated: %+v %v", again[0], err)
	}
}

func TestEachFindsTheEntryThatTheStoreDoesNotTake(t *testing.T) {
	for _, c := range []struct {
		err      error
		answered int
	}{
		{&abi.Error{Code: job.CodeInvalid, Message: "a value is refused"}, 5},
		{&abi.Error{Code: "X_JOB_ODD", Message: "it is odd"}, 5},
		{enginetest.Broken(), 2},
		{errors.New("nobody foresaw this"), 2},
	} {
		q, db := open(t)
		db.Store = &picky{Store: db.Store, input: "2", err: c.err}
		verdicts, err := q.EnqueueEach(t.Context(), free(5))
		if len(verdicts) != c.answered {
			t.Fatalf("%v: %d verdicts", c.err, len(verdicts))
		}
		if c.answered == 5 {
			if err != nil || !errors.Is(verdicts[2].Refused, c.err) || verdicts[3].Refused != nil {
				t.Errorf("%v: verdicts %+v, error %v", c.err, verdicts, err)
			}
		} else if !errors.Is(err, c.err) {
			t.Errorf("%v became %v", c.err, err)
		}
		for i, want := range []bool{true, true, false, c.answered == 5, c.answered == 5} {
			if _, err := db.Get(t.Context(), id(i)); (err == nil) != want {
				t.Errorf("%v: entry %d is there: %v", c.err, i, err == nil)
			}
		}
	}
}

// picky does not take batches with one input.
type picky struct {
	store.Store
	input string
	err   error
}

func (s *picky) Enqueue(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	for i := range batch {
		if string(batch[i].Input) == s.input {
			return nil, s.err
		}
	}
	return s.Store.Enqueue(ctx, batch)
}

func TestEachStopsAtAStoreThatIsAway(t *testing.T) {
	q, db := open(t)
	requests := free(4)
	requests[0].Job = "nobody"
	db.Between = func(context.Context, string, func() error) error { return enginetest.Away() }
	verdicts, err := q.EnqueueEach(t.Context(), requests)
	code(t, err, job.CodeDatabaseUnavailable)
	if len(verdicts) != 1 || abi.CodeOf(verdicts[0].Refused) != job.CodeUnknownJob {
		t.Errorf("verdicts %+v, want the refusal that needs no store", verdicts)
	}
	if n := db.Count("Enqueue"); n != 1 {
		t.Errorf("the store was tried %d times", n)
	}
}

func TestEachStopsAtALostAnswerAndFindsItsRunsAgain(t *testing.T) {
	q, db := open(t)
	db.Between = func(_ context.Context, _ string, call func() error) error { return enginetest.Lost(call) }
	if verdicts, err := q.EnqueueEach(t.Context(), free(3)); len(verdicts) != 0 || !errors.Is(err, store.ErrUnknown) {
		t.Fatal(verdicts, err)
	}
	db.Between = nil
	verdicts, err := q.EnqueueEach(t.Context(), free(3))
	if err != nil || len(verdicts) != 3 || !verdicts[2].Deduped || verdicts[2].ID != id(2) {
		t.Errorf("%+v %v", verdicts, err)
	}
}

func TestEachOfNothingIsNothing(t *testing.T) {
	q, db := open(t)
	if verdicts, err := q.EnqueueEach(t.Context(), nil); len(verdicts) != 0 || err != nil || db.Count("Enqueue") != 0 {
		t.Error(verdicts, err)
	}
}

// A store that answers fewer results than it was given entries has said nothing of any.
func TestEachTakesNoAnswerThatIsShort(t *testing.T) {
	q, db := open(t)
	db.Store = &curt{db.Store}
	if verdicts, err := q.PublishEach(t.Context(), []queue.Event{{Topic: "a"}, {Topic: ""}, {Topic: "b"}}); len(verdicts) != 0 || abi.CodeOf(err) != job.CodeInternal {
		t.Errorf("events: %+v, %v", verdicts, err)
	}
	if verdicts, err := q.EnqueueEach(t.Context(), free(2)); len(verdicts) != 0 || abi.CodeOf(err) != job.CodeInternal {
		t.Errorf("runs: %+v, %v", verdicts, err)
	}
}

// curt answers nothing to what it did.
type curt struct{ store.Store }

func (s *curt) Enqueue(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	_, err := s.Store.Enqueue(ctx, batch)
	return nil, err
}

func (s *curt) Publish(ctx context.Context, batch []store.EventParams) ([]store.EventResult, error) {
	_, err := s.Store.Publish(ctx, batch)
	return nil, err
}
