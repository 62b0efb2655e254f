package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// Constants, but for tests on a real database that may be slow.
var (
	// claimTimeout ends a claim on a connection that is dead without saying so.
	claimTimeout = 15 * time.Second
	// settleTimeout bounds a settle or a release, which outlast the end of a pass.
	settleTimeout = 5 * time.Second
)

// Result is what one pass did.
type Result struct {
	Claimed   int
	Published int // a run stands for them
	Deduped   int // of those: it stood before
	Rejected  int
	Missed    int // they were another relay's by then
	Released  int
}

// Pass claims a batch, publishes it in order, and settles what was answered. One
// at a time runs. It is for the relay's own loop, and for callers who want one
// round and its figures.
//
// An error says that a database did not take part. What a pass then leaves
// claimed, the next one claims anew.
func (r *Relay) Pass(ctx context.Context) (Result, error) {
	r.one.Lock()
	defer r.one.Unlock()
	began := time.Now() // before the lease begins, by whatever clock
	rows, err := r.claim(ctx)
	if err != nil || len(rows) == 0 {
		return Result{}, err
	}
	res := Result{Claimed: len(rows)}
	verdicts, failure := r.publish(ctx, rows, began)
	err = r.settle(ctx, rows[:len(verdicts)], verdicts, &res)
	if failure == nil {
		return res, err
	}
	return res, errors.Join(failure, err, r.release(ctx, rows[len(verdicts):], &res))
}

func (r *Relay) claim(ctx context.Context) ([]store.Staged, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	return r.cfg.Outbox.Claim(ctx, store.StagedClaimParams{Relay: r.id, Limit: r.cfg.Batch, Lease: r.cfg.Lease})
}

// publish enqueues and publishes rows in order and answers verdicts of the first of them, all
// or, with an error, those before the first whose outcome is open. It ends before
// the lease does: what is published later might be finished and forgotten by
// then, and run a second time.
func (r *Relay) publish(ctx context.Context, rows []store.Staged, began time.Time) ([]queue.Verdict, error) {
	end := began.Add(r.cfg.Lease - r.cfg.Lease/10)
	if !time.Now().Before(end) {
		return nil, &abi.Error{Code: job.CodeLeaseLost, Message: fmt.Sprintf("the claim took as long as the lease of %v", r.cfg.Lease)}
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	verdicts := make([]queue.Verdict, 0, len(rows))
	for len(verdicts) < len(rows) {
		some, err := r.publishAlike(ctx, rows[len(verdicts):])
		verdicts = append(verdicts, some...)
		if err != nil {
			return verdicts, err
		}
		if len(some) == 0 {
			return verdicts, &abi.Error{Code: job.CodeInternal, Message: fmt.Sprintf("the queue answered for none of %d rows", len(rows)-len(verdicts))}
		}
	}
	return verdicts, nil
}

// publishAlike publishes the first rows as far as they are all runs, or all events.
func (r *Relay) publishAlike(ctx context.Context, rows []store.Staged) ([]queue.Verdict, error) {
	n := 1
	for n < len(rows) && (rows[n].Event == nil) == (rows[0].Event == nil) {
		n++
	}
	if rows[0].Event != nil {
		events := make([]queue.Event, n)
		for i := range events {
			events[i] = event(&rows[i])
		}
		return r.cfg.Queue.PublishEach(ctx, events)
	}
	requests := make([]queue.Request, n)
	for i := range requests {
		requests[i] = request(&rows[i])
	}
	if r.cfg.Tracer == nil {
		return r.cfg.Queue.EnqueueEach(ctx, requests)
	}
	spans := r.beginSpans(rows[:n], requests)
	verdicts, err := r.cfg.Queue.EnqueueEach(ctx, requests)
	endSpans(spans, verdicts, err)
	return verdicts, err
}

// leastKeep is how long an event of an outbox is kept at least: its id must be known
// for as long as a relay that died may have published it without saying so.
const leastKeep = time.Hour

// event is what a row that is one asks for.
func event(s *store.Staged) queue.Event {
	e := *s.Event
	if e.Keep > 0 {
		e.Keep = max(e.Keep, leastKeep)
	}
	return e
}

// request is what a row asks for. A delay counts from the staging, and is what is
// left of it: durations are measured by the outbox's clock, the instant is the
// queue's, and the two need not agree.
func request(s *store.Staged) queue.Request {
	return queue.Request{
		Job: s.Job, Input: s.Input, ID: s.ID, Key: s.Key, Tenant: s.Tenant,
		RunAt: s.RunAt, Delay: max(0, s.Delay-s.Age), Priority: s.Priority, MaxAttempts: s.MaxAttempts,
		EnqueuedBy: s.EnqueuedBy, Traceparent: s.Traceparent,
	}
}

// settle writes the verdicts down. Those that do not land are another relay's to
// give, and it gives the same.
func (r *Relay) settle(ctx context.Context, rows []store.Staged, verdicts []queue.Verdict, res *Result) error {
	if len(rows) == 0 {
		return nil
	}
	batch := make([]store.StagedSettleParams, len(rows))
	for i := range rows {
		batch[i] = verdict(&rows[i], &verdicts[i])
	}
	ctx, cancel := lastWord(ctx)
	defer cancel()
	landed, err := r.cfg.Outbox.SettleStaged(ctx, batch)
	if err != nil {
		return err
	}
	refused := map[string]store.StagedSettleParams{} // the first of each code
	count := map[string]int{}
	for i, p := range batch {
		switch {
		case !landed[i]:
			res.Missed++
		case p.Code != "":
			res.Rejected++
			if count[p.Code]++; count[p.Code] == 1 {
				refused[p.Code] = p
			}
		default:
			res.Published++
			if verdicts[i].Deduped {
				res.Deduped++
			}
		}
	}
	r.cfg.Metrics.Published(r.cfg.Name, res.Published-res.Deduped, res.Deduped)
	r.cfg.Metrics.Missed(r.cfg.Name, res.Missed)
	for code, n := range count {
		r.cfg.Metrics.Rejected(r.cfg.Name, code, n)
		// Not the reason: it may repeat some of the input.
		r.cfg.Logger.Warn("outbox.rejected", slog.String("code", code), slog.Int("rows", n), slog.String("first", refused[code].Ref.ID),
			slog.String("fix", "see `runner outbox ls`, correct the cause, then `runner outbox retry`"))
	}
	if res.Missed > 0 {
		r.cfg.Logger.Info("outbox.settle-missed", slog.Int("rows", res.Missed))
	}
	return nil
}

// verdict is how a row ends. An event has no run that stands for it.
func verdict(s *store.Staged, v *queue.Verdict) store.StagedSettleParams {
	p := store.StagedSettleParams{Ref: s.Ref(), RunID: v.ID}
	switch {
	case v.Refused != nil:
		p.RunID, p.Code, p.Reason = "", job.CodeInternal, v.Refused.Error()
		var e *abi.Error
		if errors.As(v.Refused, &e) && e.Code != "" {
			p.Code, p.Reason = e.Code, e.Message
			if e.Fix != "" {
				p.Reason += " (" + e.Fix + ")"
			}
		}
	case s.Event == nil && s.OnConflict == store.ConflictReject && v.ID != s.ID:
		p.RunID, p.Code = "", job.CodeDuplicate
		p.Reason = fmt.Sprintf("a live run of job %q holds the key: %s", s.Job, v.ID)
	}
	return p
}

// release gives rows back, so that they need not wait for the lease to lapse.
func (r *Relay) release(ctx context.Context, rows []store.Staged, res *Result) error {
	refs := make([]store.StagedRef, len(rows))
	for i := range rows {
		refs[i] = rows[i].Ref()
	}
	ctx, cancel := lastWord(ctx)
	defer cancel()
	if err := r.cfg.Outbox.Release(ctx, refs); err != nil {
		return err
	}
	res.Released = len(refs)
	return nil
}

// lastWord is for the writes that end a batch, also one that was given up.
func lastWord(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
}
