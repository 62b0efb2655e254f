package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qLockInvokers   = named("lock_invokers")
	qOpenInvokers   = named("open_invokers")
	qSaveChildren   = named("save_children")
	qInvokeDepth    = named("invoke_depth")
	qRestInvokers   = named("rest_invokers")
	qTellParents    = named("tell_parents")
	qWakeParents    = named("wake_parents")
	qLeaveChildren  = named("leave_children")
	qExpireChildren = named("expire_children")
)

// InvokeDepth implements store.Events.
func (s *Store) InvokeDepth(ctx context.Context, runID string, most int) (n int, err error) {
	u, ok := parseUUID(runID)
	if !ok {
		return 0, nil
	}
	err = s.read(ctx, func(q queryer) error {
		return s.run(ctx, q, call{st: qInvokeDepth, args: []any{u.param(), most}, scan: func(r *row) error {
			n = int(r.int())
			return nil
		}})
	})
	return n, err
}

// uuidParams are ids as an argument; those that are none are left out.
func uuidParams(ids []string) []pgtype.UUID {
	out := make([]pgtype.UUID, 0, len(ids))
	for _, id := range ids {
		if u := idParam(id); u.Valid {
			out = append(out, u)
		}
	}
	return out
}

// family are the runs of a round that have ended and may have been invoked, and
// who may have invoked them.
type family struct{ ended, parents []string }

func (f *family) add(id, parent string) {
	if parent == "" {
		return
	}
	f.ended = append(f.ended, id)
	if !slices.Contains(f.parents, parent) {
		f.parents = append(f.parents, parent)
	}
}

// lock is the statement that goes before the runs are ended, and calls are those
// that go after; woken is called with each parent that is ready.
func (f *family) lock() call {
	return call{st: qLockInvokers, args: []any{uuidParams(f.parents)}}
}

func (f *family) calls(woken func(resting)) []call {
	var states, errors []string
	for _, st := range []job.State{job.Failed, job.Dead, job.Cancelled} {
		states, errors = append(states, string(st)), append(errors, *failureText(store.ChildEnded(st)))
	}
	return []call{
		{st: qTellParents, args: []any{uuidParams(f.ended), states, errors}},
		{st: qWakeParents, args: []any{uuidParams(f.parents)}, scan: func(r *row) error {
			woken(resting{queue: r.text(), tenant: r.text(), priority: int(r.int()), due: r.time(), ready: true})
			return nil
		}},
	}
}

// startChildren inserts the children of a run that is held, and their records.
func (s *Store) startChildren(ctx context.Context, tx pgx.Tx, p *store.SettleParams, mode enqueueMode) (*entries, error) {
	start := p.Invoke.Start
	batch := make([]store.EnqueueParams, len(start))
	for i := range start {
		batch[i] = start[i].Run
	}
	b, err := newEntries(batch)
	if err != nil || len(start) == 0 {
		return b, err
	}
	if err := s.enqueueIn(ctx, tx, b, b.all(), mode); err != nil {
		return nil, err
	}
	n := len(start)
	parents, names, children := make([]pgtype.UUID, n), make([]string, n), make([]pgtype.UUID, n)
	errors, abandon, keep, timeouts := make([]*string, n), make([]bool, n), make([]int64, n), make([]int64, n)
	for i := range start {
		c := &start[i]
		parents[i], names[i] = idParam(p.Ref.RunID), enc(c.Name)
		abandon[i], keep[i] = c.Abandon, ms(c.Retention)
		if c.Timeout > 0 {
			timeouts[i] = max(ms(c.Timeout), 1)
		}
		if res := b.results[i]; res.Deduped {
			errors[i] = failureText(store.ChildHeld(c.Run.Job, res.ID))
		} else {
			children[i] = idParam(c.Run.ID)
		}
	}
	return b, s.run(ctx, tx, call{st: qSaveChildren, args: []any{parents, names, children, errors, abandon, keep, timeouts}})
}

// restInvokers is the statement that leaves parents, which a settle suspended,
// parked or ready.
func restInvokers(ids []string, most []int32, timed []bool, each func(i int, rest resting)) call {
	return call{st: qRestInvokers, args: []any{uuidParams(ids), most, timed}, scan: scanRest(each)}
}

// familyChild is a live child that is to be cancelled, for keep ms.
type familyChild struct {
	id, parent string
	keep       int64
}

// expireChildren ends the waiting of parents for children whose time is over.
func (s *Store) expireChildren(ctx context.Context, tx pgx.Tx, parents []string) (undone []resting, err error) {
	var late []familyChild
	args := []any{uuidParams(parents), *failureText(store.ChildTimedOut(false)), *failureText(store.ChildTimedOut(true))}
	err = s.run(ctx, tx, call{st: qExpireChildren, args: args, scan: func(r *row) error {
		late = append(late, familyChild{r.uuid(), r.uuid(), r.int()})
		return nil
	}})
	if err != nil || len(late) == 0 {
		return nil, err
	}
	ended, undone, err := s.cancelChildren(ctx, tx, late, store.ChildTooLate, false)
	if err != nil {
		return nil, err
	}
	more, err := s.leaveChildren(ctx, tx, ended, false)
	return append(undone, more...), err
}

// cancelChildren cancels runs that may have ended, or be gone. It answers which did
// end, whose children are left, and which are undone first.
func (s *Store) cancelChildren(ctx context.Context, tx pgx.Tx, children []familyChild, why func(parent string) *job.Failure, noCompensate bool) (ended []string, undone []resting, err error) {
	for _, c := range children {
		one := cancelled{s: s, tx: tx}
		_, err := one.one(ctx, store.CancelParams{
			ID: c.id, Reason: why(c.parent).Message, Retention: time.Duration(c.keep) * time.Millisecond, NoCompensate: noCompensate,
		})
		switch abi.CodeOf(err) {
		case "":
			if err != nil {
				return nil, nil, err
			}
		case job.CodeNotFound, job.CodeNotCancellable:
		default:
			return nil, nil, err
		}
		undone = append(undone, one.woken...)
		if one.did {
			ended = append(ended, c.id)
		}
	}
	return ended, undone, nil
}

// leaveChildren cancels the live children of runs that have ended, and theirs, but
// for those to be abandoned. It answers which of them are undone first. noCompensate
// is as of store.CancelParams.
func (s *Store) leaveChildren(ctx context.Context, tx pgx.Tx, parents []string, noCompensate bool) (undone []resting, err error) {
	for len(parents) > 0 {
		var children []familyChild
		args := []any{uuidParams(parents), *failureText(store.ChildLeft(false)), *failureText(store.ChildLeft(true))}
		err := s.run(ctx, tx, call{st: qLeaveChildren, args: args, scan: func(r *row) error {
			children = append(children, familyChild{r.uuid(), r.uuid(), r.int()})
			return nil
		}})
		if err != nil {
			return nil, err
		}
		var some []resting
		if parents, some, err = s.cancelChildren(ctx, tx, children, store.ParentEnded, noCompensate); err != nil {
			return nil, err
		}
		undone = append(undone, some...)
	}
	return undone, nil
}
