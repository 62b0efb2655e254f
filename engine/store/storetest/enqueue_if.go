package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// errUnwanted is what the tests' accept funcs answer: a coded error that wraps
// another, as a caller's is.
var (
	errUnwanted = &abi.Error{Code: job.CodeDuplicate, Message: "not like this", Err: errWhy}
	errWhy      = errors.New("the caller's reason")
)

// unlessDeduped accepts results that are all new.
func unlessDeduped(results []store.EnqueueResult) error {
	if slices.ContainsFunc(results, func(r store.EnqueueResult) bool { return r.Deduped }) {
		return errUnwanted
	}
	return nil
}

func (e *env) batch(n int, fill func(i int) store.EnqueueParams) []store.EnqueueParams {
	out := make([]store.EnqueueParams, n)
	for i := range out {
		out[i] = e.params(fill(i))
	}
	return out
}

var enqueueIfTests = []test{
	{"what is accepted is there, and answered as by an enqueue", func(e *env) {
		holder := e.add(store.EnqueueParams{Key: "held"})
		batch := e.batch(3, func(i int) store.EnqueueParams {
			return store.EnqueueParams{Key: []string{"held", "new", "new"}[i], Input: []byte("1")}
		})
		want := []store.EnqueueResult{
			{ID: holder, Deduped: true, State: job.Ready}, {ID: batch[1].ID, State: job.Ready}, {ID: batch[1].ID, Deduped: true, State: job.Ready},
		}
		var seen []store.EnqueueResult
		got, err := e.db.EnqueueIf(e.ctx, batch, func(results []store.EnqueueResult) error {
			seen = slices.Clone(results)
			return nil
		})
		if err != nil {
			e.Fatal(err)
		}
		if d := cmp.Diff(want, seen) + cmp.Diff(want, got); d != "" {
			e.Fatalf("shown and answered (-want +got):\n%s", d)
		}
		if r := e.get(batch[1].ID); r.State != job.Ready || string(r.Input) != "1" {
			e.Fatalf("stored %+v", r)
		}
		e.wantState(holder, job.Ready)
	}},
	// (M7)
	{"what is not accepted leaves nothing, and the error is the caller's own", func(e *env) {
		holder := e.add(store.EnqueueParams{Key: "k700"})
		batch := e.batch(1500, func(i int) store.EnqueueParams {
			return store.EnqueueParams{Key: fmt.Sprint("k", i), Input: make([]byte, i)}
		})
		_, err := e.db.EnqueueIf(e.ctx, batch, unlessDeduped)
		e.wantRefused(err, job.CodeDuplicate)
		if !errors.Is(err, errWhy) {
			e.Fatalf("the error is %v, want the one that accept answered", err)
		}
		e.wantList(store.ListParams{}, holder)
		if got, err := e.db.FindLive(e.ctx, jobA, "", "k3"); err != nil || got != "" {
			e.Fatalf("a refused entry holds its key: %q, %v", got, err)
		}
		// The ids were not used up.
		if res := e.enqueue(batch[0]); res[0].Deduped {
			e.Fatalf("answer %+v", res)
		}
	}},
	{"a refusal takes nobody along", func(e *env) {
		e.add(store.EnqueueParams{Key: "held"})
		var refused, others [20][]store.EnqueueParams
		for i := range refused {
			refused[i] = e.batch(2, func(n int) store.EnqueueParams { return store.EnqueueParams{Key: []string{"", "held"}[n]} })
			others[i] = e.batch(1, func(int) store.EnqueueParams { return store.EnqueueParams{Queue: "other"} })
		}
		parallel(2*len(others), func(i int) {
			if i%2 == 0 {
				if _, err := e.db.EnqueueIf(e.ctx, refused[i/2], unlessDeduped); !errors.Is(err, errWhy) {
					e.Errorf("the error is %v, want accept's", err)
				}
				return
			}
			if _, err := e.db.Enqueue(e.ctx, others[i/2]); err != nil {
				e.Errorf("an enqueue beside it: %v", err)
			}
		})
		if n := len(e.list(store.ListParams{})); n != 1+len(others) {
			e.Fatalf("%d runs, want %d", n, 1+len(others))
		}
	}},
	{"of eight batches for the same keys, one is accepted whole", func(e *env) {
		var batches [8][]store.EnqueueParams
		for i := range batches {
			batches[i] = e.batch(10, func(n int) store.EnqueueParams {
				return store.EnqueueParams{Key: fmt.Sprint("k", (n+i)%10)} // each in another order
			})
		}
		var mu sync.Mutex
		var accepted []int
		parallel(8, func(i int) {
			switch _, err := e.db.EnqueueIf(e.ctx, batches[i], unlessDeduped); {
			case err == nil:
				mu.Lock()
				accepted = append(accepted, i)
				mu.Unlock()
			case !errors.Is(err, errWhy):
				e.Errorf("batch %d: %v", i, err)
			}
		})
		if len(accepted) != 1 {
			e.Fatalf("batches %v were accepted, want one", accepted)
		}
		got := ids(e.list(store.ListParams{}))
		for _, p := range batches[accepted[0]] {
			if !slices.Contains(got, p.ID) {
				e.Errorf("run %s of the accepted batch is not there", p.ID)
			}
		}
		if len(got) != 10 {
			e.Fatalf("%d runs, want the 10 of one batch", len(got))
		}
	}},
	{"what is accepted wakes its queue", func(e *env) {
		next, stop := e.wakes()
		defer stop()
		next("a", func() {
			if _, err := e.db.EnqueueIf(e.ctx, e.batch(1, func(int) store.EnqueueParams { return store.EnqueueParams{Queue: "a"} }), unlessDeduped); err != nil {
				e.Fatal(err)
			}
		})
	}},
	{"of a bad id nothing is asked, and of nothing neither", func(e *env) {
		never := func([]store.EnqueueResult) error {
			e.Error("accept was called")
			return nil
		}
		_, err := e.db.EnqueueIf(e.ctx, []store.EnqueueParams{e.params(store.EnqueueParams{ID: "nonsense"})}, never)
		e.wantRefused(err, job.CodeIDInvalid)
		if res, err := e.db.EnqueueIf(e.ctx, nil, never); err != nil || len(res) != 0 {
			e.Fatalf("answer %v, %v", res, err)
		}
	}},
}
