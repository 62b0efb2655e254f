package queue

import (
	"context"
	"fmt"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Verb is what a bulk operation does to each of its runs.
type Verb string

const (
	Cancel  Verb = "cancel"
	Retry   Verb = "retry"
	Promote Verb = "promote"
	Delete  Verb = "delete"
)

// suits reports whether a run in s can be the verb's.
func (v Verb) suits(s job.State) bool {
	switch v {
	case Cancel:
		return s.Live()
	case Retry:
		return s.Requeueable()
	case Promote:
		return s.Promotable()
	case Delete:
		return s.Removable()
	}
	return false
}

// MaxBulk bounds the runs of one bulk operation.
const MaxBulk = 1000

// BulkParams names the runs of a bulk operation by a filter, of which a State is
// required: the operation on everything is nobody's intention. Its Limit, Oldest
// and Before are not used; After goes on where an earlier operation ended.
type BulkParams struct {
	Verb   Verb
	Filter store.ListParams
	Limit  int    // runs to act on; 0 is MaxBulk, which is the most
	Reason string // Cancel
	// NoCompensate ends the runs of a Cancel where they are, and leaves those of a
	// Retry so that are half undone: as of RequeueParams.
	NoCompensate bool
	Latest       bool // Retry: as of RequeueParams
	Attempts     int  // Retry: likewise
	DryRun       bool // act on none, and answer those it would be
}

// BulkResult is what a bulk operation did.
type BulkResult struct {
	Moved []string // ids of the runs acted on, oldest first
	// Undoing are those of Moved that end once their steps are undone: cancelled, or
	// retried since they were half undone.
	Undoing []string
	// Fresh are, by those of Moved that were undone, the runs that were enqueued in
	// their place by a Retry.
	Fresh map[string]string
	// Blocked are runs that could not be retried since another live run holds
	// their key. They spend nothing of the limit.
	Blocked int
	// Remaining is what the same call could act on again, counted up to MaxBulk.
	Remaining int
}

// Bulk does a verb to the runs that a filter names, oldest first, each in a
// write of its own: one that changes meanwhile is passed over. With an error it
// answers what it had done.
// Errors: X_INVALID for a missing or unsuitable state or a limit out of range;
// X_JOB_PAGE_INVALID; the store's.
func (q *Queue) Bulk(ctx context.Context, p BulkParams) (BulkResult, error) {
	if p.Limit == 0 {
		p.Limit = MaxBulk
	}
	switch {
	case p.Verb != Cancel && p.Verb != Retry && p.Verb != Promote && p.Verb != Delete:
		return BulkResult{}, invalid("name a verb for runs", "%s is nothing to be done in bulk", job.Quote(string(p.Verb)))
	case p.Filter.State == "":
		return BulkResult{}, &abi.Error{Code: job.CodeInvalid, Message: "a bulk " + string(p.Verb) + " names no state", Fix: "say the state of the runs it is for"}
	case !p.Verb.suits(p.Filter.State):
		return BulkResult{}, &abi.Error{
			Code:    job.CodeInvalid,
			Message: fmt.Sprintf("no run that is %s can be the one of a %s", job.Quote(string(p.Filter.State)), p.Verb),
			Fix:     "name another state",
		}
	case p.Limit < 0 || p.Limit > MaxBulk:
		return BulkResult{}, invalid(fmt.Sprintf("ask for 1 to %d, and again for what remains", MaxBulk), "a bulk %s of %d runs", p.Verb, p.Limit)
	}
	b := bulk{q: q, p: p, taken: map[liveKey]bool{}}
	err := b.walk(ctx)
	return b.res, err
}

// liveKey is an idempotency key in its namespace.
type liveKey struct{ job, tenant, key string }

// bulk is one operation under way.
type bulk struct {
	q     *Queue
	p     BulkParams
	res   BulkResult
	taken map[liveKey]bool // keys that this operation made live, or would

	unwinds map[string]job.Unwind // of the page's runs
}

// walk pages through the runs of the filter until the limit is spent and what
// remains is counted.
func (b *bulk) walk(ctx context.Context) error {
	page := b.p.Filter
	page.Oldest, page.Before, page.Limit = true, "", 500
	for {
		runs, err := b.q.store.List(ctx, page)
		if err != nil {
			return err
		}
		if err := b.lookUp(ctx, runs); err != nil {
			return err
		}
		for i := range runs {
			r := &runs[i]
			switch {
			case len(b.res.Moved) < b.p.Limit && !b.p.DryRun:
				err = b.move(ctx, r)
			default:
				err = b.count(ctx, r)
			}
			if err != nil {
				return err
			}
			if b.res.Remaining == MaxBulk {
				return nil
			}
		}
		if len(runs) < page.Limit {
			return nil
		}
		page.After = runs[len(runs)-1].ID
	}
}

// lookUp learns which runs of a page are undone, if the verb depends on it.
func (b *bulk) lookUp(ctx context.Context, runs []job.Run) (err error) {
	if b.p.Verb != Retry && b.p.Verb != Cancel {
		return nil
	}
	ids := make([]string, len(runs))
	for i := range runs {
		ids[i] = runs[i].ID
	}
	b.unwinds, err = b.q.store.Unwinds(ctx, ids)
	return err
}

// passed are refusals of a run that is not, any more, what the filter asked for.
var passed = map[string]bool{
	job.CodeNotFound: true, job.CodeNotCancellable: true, job.CodeNotRequeueable: true, job.CodeNotPromotable: true, job.CodeNotRemovable: true,
}

func (b *bulk) move(ctx context.Context, r *job.Run) error {
	var err error
	switch b.p.Verb {
	case Cancel:
		var now job.Run
		now, err = b.q.Cancel(ctx, store.CancelParams{ID: r.ID, Reason: b.p.Reason, NoCompensate: b.p.NoCompensate})
		if err == nil && now.State.Live() {
			b.res.Undoing = append(b.res.Undoing, r.ID)
		}
	case Retry:
		var now job.Run
		now, err = b.q.Retry(ctx, store.RequeueParams{
			ID: r.ID, Attempts: b.p.Attempts, NoCompensate: b.p.NoCompensate, Latest: b.p.Latest,
		})
		_, undone := b.unwinds[r.ID]
		switch {
		case err != nil:
		case now.ID != r.ID:
			if b.res.Fresh == nil {
				b.res.Fresh = map[string]string{}
			}
			b.res.Fresh[r.ID] = now.ID
		case undone:
			b.res.Undoing = append(b.res.Undoing, r.ID)
		}
	case Promote:
		_, err = b.q.Promote(ctx, r.ID)
	case Delete:
		_, err = b.q.Delete(ctx, r.ID)
	}
	switch code := abi.CodeOf(err); {
	case err == nil:
		b.res.Moved = append(b.res.Moved, r.ID)
		b.taken[liveKey{r.Job, r.Tenant, r.Key}] = true
	case code == job.CodeDuplicate:
		b.res.Blocked++
	case !passed[code]:
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	return nil
}

// over reports whether a run that was undone, or is being undone, has had from the
// verb what it can have: the fresh run of a retry, or a cancel.
func (b *bulk) over(ctx context.Context, id string, u job.Unwind) (bool, error) {
	if b.p.Verb == Cancel {
		return u.Cancelled && !b.p.NoCompensate, nil
	}
	fresh, err := successor(id)
	if err != nil {
		return false, err
	}
	_, err = b.q.store.Get(ctx, fresh)
	if abi.CodeOf(err) == job.CodeNotFound {
		return false, nil
	}
	return err == nil, err
}

// count counts a run that the operation could act on but does not.
func (b *bulk) count(ctx context.Context, r *job.Run) error {
	if u, undone := b.unwinds[r.ID]; undone {
		over, err := b.over(ctx, r.ID, u)
		if over || err != nil {
			return err
		}
	}
	if b.p.Verb == Retry && r.Key != "" {
		k := liveKey{r.Job, r.Tenant, r.Key}
		held := b.taken[k]
		if !held {
			holder, err := b.q.store.FindLive(ctx, r.Job, r.Tenant, r.Key)
			if err != nil {
				return err
			}
			held = holder != ""
		}
		if held {
			b.res.Blocked++
			return nil
		}
		b.taken[k] = true
	}
	if b.p.DryRun && len(b.res.Moved) < b.p.Limit {
		b.res.Moved = append(b.res.Moved, r.ID)
		return nil
	}
	b.res.Remaining++
	return nil
}
