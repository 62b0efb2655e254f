package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// keyed asks for a run whose key is n.
func keyed(n int, conflict queue.OnConflict) queue.Request {
	return queue.Request{Job: "keyed", Input: fmt.Appendf(nil, `{"id":%d}`, n), OnConflict: conflict}
}

func conflictsOf(t *testing.T, err error) []queue.Conflict {
	t.Helper()
	code(t, err, job.CodeDuplicate)
	var all *queue.ConflictError
	if !errors.As(err, &all) {
		t.Fatalf("%v names no conflicts", err)
	}
	return all.Conflicts
}

func count(t *testing.T, q *queue.Queue) int {
	t.Helper()
	runs, err := q.List(t.Context(), store.ListParams{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return len(runs)
}

func TestABatchThatMustNotConflictNamesEveryConflictAndWritesNothing(t *testing.T) {
	q, _ := open(t)
	held := map[int]string{}
	for _, n := range []int{3, 1200, 1900} { // beyond what several writes would have had between them
		r, err := q.Enqueue(t.Context(), keyed(n, queue.Dedupe))
		if err != nil {
			t.Fatal(err)
		}
		held[n] = r.ID
	}
	batch := make([]queue.Request, 2000)
	for n := range batch {
		batch[n] = keyed(n, queue.Fail)
	}
	batch[1500] = keyed(7, queue.Fail)    // as entry 7 of the batch
	batch[1900].OnConflict = queue.Dedupe // this one may be another's
	_, err := q.EnqueueMany(t.Context(), batch)
	want := []queue.Conflict{{Index: 3, Holder: held[3]}, {Index: 1200, Holder: held[1200]}, {Index: 1500, Before: 7}}
	if d := cmp.Diff(want, conflictsOf(t, err)); d != "" {
		t.Errorf("conflicts (-want +got):\n%s", d)
	}
	for _, part := range []string{"3 of 2000", "entry 3 by run " + held[3], "entry 1500 by entry 7"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if n := count(t, q); n != len(held) {
		t.Errorf("%d runs are there, want the %d that were", n, len(held))
	}

	batch[3], batch[1200], batch[1500] = keyed(3000, queue.Fail), keyed(3001, queue.Fail), keyed(3002, queue.Fail)
	res, err := q.EnqueueMany(t.Context(), batch)
	if err != nil || len(res) != len(batch) {
		t.Fatalf("without the conflicts: %d results, %v", len(res), err)
	}
	for i, r := range res {
		if r.Deduped != (i == 1900) {
			t.Errorf("entry %d: %+v", i, r)
		}
	}
}

func TestAMessageOfManyConflictsIsBoundedAndTheErrorHasThemAll(t *testing.T) {
	q, _ := open(t)
	if _, err := q.Enqueue(t.Context(), keyed(1, queue.Dedupe)); err != nil {
		t.Fatal(err)
	}
	batch := make([]queue.Request, 500)
	for n := range batch {
		batch[n] = keyed(1, queue.Fail)
	}
	_, err := q.EnqueueMany(t.Context(), batch)
	if got := conflictsOf(t, err); len(got) != 500 || got[499].Index != 499 {
		t.Errorf("%d conflicts", len(got))
	}
	if text := err.Error(); len(text) > 2000 || !strings.Contains(text, "and 480 more") {
		t.Errorf("the message has %d bytes: %.200s", len(text), text)
	}
}

func TestABatchWithoutConflictsIsWrittenOnceThoughItsAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, db := open(t)
		lost := 2
		db.Between = func(_ context.Context, op string, call func() error) error {
			if op == "EnqueueIf" && lost > 0 {
				lost--
				return enginetest.Lost(call)
			}
			return call()
		}
		res, err := q.EnqueueMany(t.Context(), []queue.Request{keyed(1, queue.Fail), keyed(2, queue.Fail)})
		if err != nil || res[0].Deduped || res[1].Deduped || lost != 0 {
			t.Errorf("%+v, %v, %d answers to lose", res, err, lost)
		}
		if n := count(t, q); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
	})
}

func TestATransactionsConflictsAreAllNamed(t *testing.T) {
	q, db := open(t)
	held, err := q.Enqueue(t.Context(), keyed(1, queue.Dedupe))
	if err != nil {
		t.Fatal(err)
	}
	batch := []queue.Request{keyed(1, queue.Fail), keyed(2, queue.Fail), keyed(2, queue.Fail), keyed(1, queue.Dedupe)}
	_, err = q.EnqueueThrough(t.Context(), batch, db.Enqueue)
	want := []queue.Conflict{{Index: 0, Holder: held.ID}, {Index: 2, Before: 1}}
	if d := cmp.Diff(want, conflictsOf(t, err)); d != "" {
		t.Errorf("conflicts (-want +got):\n%s", d)
	}
}
