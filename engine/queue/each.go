package queue

import (
	"context"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Verdict answers one request of EnqueueEach.
type Verdict struct {
	Result
	// Refused is why no run can be made of the request as it is; nil otherwise.
	Refused error
}

// EnqueueEach inserts a batch whose entries do not stand for each other, as they
// come from somewhere that cannot be asked to correct them: a bad one is refused
// by its verdict and holds nobody up. It answers verdicts in order, of all
// requests or, with an error, of those before the first whose outcome is open.
// Repeating that one and what follows is safe where requests have an ID, which is
// for the caller to do: a store that is away is not waited for.
//
// Every request is Dedupe: what a live holder means is the caller's to say.
//
// Errors: the store's.
func (q *Queue) EnqueueEach(ctx context.Context, requests []Request) ([]Verdict, error) {
	verdicts := make([]Verdict, len(requests))
	var good []store.EnqueueParams
	var at []int // of good, in requests
	for i := range requests {
		var p store.EnqueueParams
		if err := q.prepare(&requests[i], &p); err != nil {
			if abi.CodeOf(err) == job.CodeInternal {
				return verdicts[:0], err
			}
			verdicts[i].Refused = err
			continue
		}
		good, at = append(good, p), append(at, i)
	}
	w := walk[store.EnqueueParams, store.EnqueueResult]{
		entries: good,
		share:   func(left []store.EnqueueParams) int { return min(len(left), enqueueChunk) },
		write: func(ctx context.Context, some []store.EnqueueParams) ([]store.EnqueueResult, error) {
			results, err := q.store.Enqueue(ctx, some)
			if err == nil {
				q.metrics.Batch("enqueue", len(some))
			}
			return results, err
		},
		alone:  func(p *store.EnqueueParams) { p.Minted = false },
		answer: func(i int, r store.EnqueueResult) { verdicts[at[i]].Result = result(&requests[at[i]], &good[i], r) },
		refuse: func(i int, err error) { verdicts[at[i]].Refused = err },
	}
	open, err := w.run(ctx)
	if err != nil {
		q.metrics.Enqueued("failed", len(good)-open)
		verdicts = verdicts[:at[open]]
	}
	for i := range verdicts {
		if v := &verdicts[i]; v.Refused != nil {
			q.metrics.Enqueued("refused", 1)
		} else {
			q.count(v.Result)
		}
	}
	return verdicts, err
}
