package queue

import (
	"context"
	"strings"

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
	e := each{q: q, requests: requests, verdicts: make([]Verdict, len(requests))}
	for i := range requests {
		var p store.EnqueueParams
		if err := q.prepare(&requests[i], &p); err != nil {
			if abi.CodeOf(err) == job.CodeInternal {
				return e.verdicts[:0], err
			}
			e.verdicts[i].Refused = err
			continue
		}
		e.good, e.at = append(e.good, p), append(e.at, i)
	}
	answered, err := e.insert(ctx)
	for i := range answered {
		if v := &e.verdicts[i]; v.Refused != nil {
			q.metrics.Enqueued("refused", 1)
		} else {
			q.count(v.Result)
		}
	}
	return e.verdicts[:answered], err
}

// each is one EnqueueEach under way.
type each struct {
	q        *Queue
	requests []Request
	verdicts []Verdict
	good     []store.EnqueueParams
	at       []int // of good, in requests
}

// insert writes the good requests and answers how many verdicts stand.
func (e *each) insert(ctx context.Context) (answered int, err error) {
	for start := 0; start < len(e.good); start += enqueueChunk {
		end := min(start+enqueueChunk, len(e.good))
		results, err := e.write(ctx, start, end)
		if err == nil {
			for i, r := range results {
				e.answer(start+i, r)
			}
			continue
		}
		if transient(err) {
			return e.stop(start, err)
		}
		// Something in the chunk does not suit the store: one by one tells what.
		if at, err := e.oneByOne(ctx, start, end); err != nil {
			return e.stop(at, err)
		}
	}
	return len(e.requests), nil
}

// write is one try.
func (e *each) write(ctx context.Context, start, end int) ([]store.EnqueueResult, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	results, err := e.q.store.Enqueue(ctx, e.good[start:end])
	if err == nil && len(results) != end-start {
		err = &abi.Error{Code: job.CodeInternal, Message: "the store answered another number of results than it was given entries"}
	}
	if err != nil {
		return nil, err
	}
	e.q.metrics.Batch("enqueue", end-start)
	return results, nil
}

// oneByOne writes a chunk entry by entry, up to the first whose outcome is open.
func (e *each) oneByOne(ctx context.Context, start, end int) (at int, err error) {
	for i := start; i < end; i++ {
		e.good[i].Minted = false
		results, err := e.write(ctx, i, i+1)
		switch {
		case err == nil:
			e.answer(i, results[0])
		case entrysOwn(err):
			e.verdicts[e.at[i]].Refused = err
		default:
			return i, err
		}
	}
	return end, nil
}

// entrysOwn reports whether err is about the entry itself, so that no store
// that is well takes it.
func entrysOwn(err error) bool {
	switch code := abi.CodeOf(err); code {
	case job.CodeInvalid, job.CodeIDInvalid:
		return !transient(err)
	default:
		return strings.HasPrefix(code, "X_JOB_") && !transient(err)
	}
}

func (e *each) answer(i int, r store.EnqueueResult) {
	e.verdicts[e.at[i]].Result = result(&e.requests[e.at[i]], &e.good[i], r)
}

// stop ends the answer before good entry i.
func (e *each) stop(i int, err error) (int, error) {
	e.q.metrics.Enqueued("failed", len(e.good)-i)
	return e.at[i], err
}
