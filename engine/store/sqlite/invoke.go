package sqlite

import (
	"context"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qInsertInvocation  = named("insert_invocation")
	qSetChild          = named("set_child")
	qInvocation        = named("invocation")
	qInvokeDepth       = named("invoke_depth")
	qDeleteInvocation  = named("delete_invocation")
	qLiveChildren      = named("live_children")
	qParkForChildren   = named("park_for_children")
	qParkedForChildren = named("parked_for_children")
	qChildEnd          = named("child_end")
	qEndInvoke         = named("end_invoke")
	qChildrenOf        = named("children_of")
	qLateChildren      = named("late_children")
	qNextLate          = named("next_late")
)

// InvokeDepth implements store.Events.
func (s *Store) InvokeDepth(ctx context.Context, runID string, most int) (n int, err error) {
	u, ok := parseUUID(runID)
	if !ok {
		return 0, nil
	}
	err = s.read(ctx, func(c *conn) error {
		q := c.use(qInvokeDepth)
		q.blob(u[:])
		q.int(int64(most))
		if q.step() {
			n = int(q.colInt(0))
		}
		return q.end()
	})
	return n, err
}

// startChildren inserts the children of a run that is held, and their records.
func (t *tx) startChildren(h *held, p *store.InvokeParams, module string) error {
	for i := range p.Start {
		c := &p.Start[i]
		res, err := t.enqueueOne(&c.Run)
		if err != nil {
			return err
		}
		st := store.StepParams{Name: c.Name, Kind: job.KindInvoke, Status: job.StepWaiting, Module: module}
		if c.Timeout > 0 {
			st.WakeAt = fromMS(t.now + max(c.Timeout.Milliseconds(), 1))
		}
		if res.Deduped {
			st.Status, st.Error = job.StepFailed, store.ChildHeld(c.Run.Job, res.ID)
		}
		if _, err := t.saveStep(h, &st); err != nil {
			return err
		}
		if res.Deduped {
			continue
		}
		id, _ := parseUUID(c.Run.ID)
		q := t.use(qSetChild)
		q.int(h.seq)
		q.text(c.Name)
		q.blob(id[:])
		if err := q.exec(); err != nil {
			return err
		}
		q = t.use(qInsertInvocation)
		q.blob(id[:])
		q.int(h.seq)
		q.text(c.Name)
		q.bool(c.Abandon)
		q.int(max(c.Retention.Milliseconds(), 0))
		if err := q.exec(); err != nil {
			return err
		}
	}
	return nil
}

// expireChildren ends the waiting for children whose time is over.
func (t *tx) expireChildren(h *held, parentID string) error {
	q := t.use(qLateChildren)
	q.int(h.seq)
	q.int(t.now)
	return t.leaveChildren(&q, leaving{
		parent: h.seq, status: job.StepFailed, failure: store.ChildTimedOut, reason: store.ChildTooLate(parentID).Message,
	})
}

// leaving is how a parent stops waiting for children.
type leaving struct {
	parent       int64
	status       job.StepStatus // of their records
	failure      func(abandoned bool) *job.Failure
	reason       string // of the cancel of those that are not to be abandoned
	noCompensate bool   // as of store.CancelParams
}

// leaveChildren has a parent wait no longer for the children that q, which is bound,
// selects as children_of does, and cancels them but for those to be abandoned.
func (t *tx) leaveChildren(q *call, l leaving) error {
	type child struct {
		id      uuid
		name    string
		abandon bool
		keep    int64
	}
	var children []child
	for q.step() {
		c := child{name: q.colText(1), abandon: q.colInt(2) != 0, keep: q.colInt(3)}
		copy(c.id[:], q.s.ColumnRawBlob(0))
		children = append(children, c)
	}
	if err := q.end(); err != nil {
		return err
	}
	for _, c := range children {
		q := t.use(qDeleteInvocation)
		q.blob(c.id[:])
		if err := q.exec(); err != nil {
			return err
		}
		q = t.use(qEndInvoke)
		q.int(l.parent)
		q.text(c.name)
		q.blob(c.id[:])
		q.text(string(l.status))
		q.null()
		q.int(t.now)
		bindFailure(&q, l.failure(c.abandon))
		if err := q.exec(); err != nil {
			return err
		}
		if c.abandon {
			continue
		}
		p := store.CancelParams{ID: c.id.String(), Reason: l.reason, Retention: time.Duration(c.keep) * time.Millisecond, NoCompensate: l.noCompensate}
		if err := t.cancelChild(p); err != nil {
			return err
		}
	}
	return nil
}

// cancelChild cancels a run that may have ended, or be gone.
func (t *tx) cancelChild(p store.CancelParams) error {
	r, seq, err := t.get(p.ID)
	switch code := abi.CodeOf(err); {
	case code == job.CodeNotFound || code == job.CodeRowStatusUnknown || err == nil && !r.State.Live():
		return nil
	case err != nil:
		return err
	}
	if err := t.cancel(&r, seq, p); err != nil && abi.CodeOf(err) != job.CodeNotCancellable {
		return err
	}
	return nil
}

// nextLate is when the first of a run's live children is late, or never.
func (t *tx) nextLate(parent int64) (at int64, err error) {
	at = t.now + store.InvokeHorizon.Milliseconds()
	q := t.use(qNextLate)
	q.int(parent)
	if q.step() {
		if first := q.colInt(0); first > 0 { // NULL is 0
			at = min(at, first)
		}
	}
	return at, q.end()
}

// parkForChildren has a run that was just suspended wait until at most that many
// of its children are live, unless so few are: then it is ready.
func (t *tx) parkForChildren(h *held, most int) (ready bool, err error) {
	live, err := t.liveChildren(h.seq)
	if err != nil {
		return false, err
	}
	if live <= int64(most) {
		return true, t.readyParked(h.seq, h.queue)
	}
	q := t.use(qParkForChildren)
	q.int(h.seq)
	q.int(int64(most))
	return false, q.exec()
}

func (t *tx) liveChildren(parent int64) (live int64, err error) {
	q := t.use(qLiveChildren)
	q.int(parent)
	if q.step() {
		live = q.colInt(0)
	}
	return live, q.end()
}

// tellParent gives the end of a run to the run that waits for it, if one does.
func (t *tx) tellParent(child string) error {
	id, ok := parseUUID(child)
	if !ok {
		return nil
	}
	q := t.use(qInvocation)
	q.blob(id[:])
	var parent int64
	var name string
	if q.step() {
		parent, name = q.colInt(0), q.colText(1)
	}
	if err := q.end(); err != nil || name == "" {
		return err
	}
	q = t.use(qDeleteInvocation)
	q.blob(id[:])
	if err := q.exec(); err != nil {
		return err
	}
	q = t.use(qChildEnd)
	q.blob(id[:])
	var state job.State
	var output []byte
	var failure job.Failure
	if q.step() {
		state, output, failure = job.State(q.colText(0)), q.colBlob(1), scanFailure(&q, 2)
	}
	if err := q.end(); err != nil {
		return err
	}
	q = t.use(qEndInvoke)
	q.int(parent)
	q.text(name)
	q.blob(id[:])
	if state == job.Done {
		q.text(string(job.StepCompleted))
		q.blob(output)
		q.int(t.now)
		bindFailure(&q, nil)
	} else {
		if failure.Message == "" || state == job.Cancelled && failure.Code != job.CodeCancelled {
			// What an earlier attempt failed of is not how it ended.
			failure = *store.ChildEnded(state)
		}
		q.text(string(job.StepFailed))
		q.null()
		q.int(t.now)
		bindFailure(&q, &failure)
	}
	if err := q.exec(); err != nil {
		return err
	}
	return t.wakeParent(parent)
}

// wakeParent makes a run ready if it is parked for no more of its children than
// are live.
func (t *tx) wakeParent(parent int64) error {
	live, err := t.liveChildren(parent)
	if err != nil {
		return err
	}
	q := t.use(qParkedForChildren)
	q.int(parent)
	q.int(live)
	queue, parked := "", q.step()
	if parked {
		queue = q.colText(0)
	}
	if err := q.end(); err != nil || !parked {
		return err
	}
	return t.readyParked(parent, queue)
}

// endChildren cancels the live children of a run that has ended, and theirs, but
// for those to be abandoned. noCompensate is as of store.CancelParams.
func (t *tx) endChildren(parent int64, parentID string, noCompensate bool) error {
	q := t.use(qChildrenOf)
	q.int(parent)
	return t.leaveChildren(&q, leaving{
		parent: parent, status: job.StepRetrying, failure: store.ChildLeft, reason: store.ParentEnded(parentID).Message, noCompensate: noCompensate,
	})
}

// cancelRun makes a live run cancelled, for the reason if there is one.
func (t *tx) cancelRun(seq int64, queue string, keep int64, reason *job.Failure) error {
	if err := t.leaveAny(seq); err != nil {
		return err
	}
	expires := int64(0)
	if keep > 0 {
		expires = t.now + keep
	}
	q := t.use(qCancelRun)
	q.int(seq)
	q.int(t.now)
	q.ms(expires)
	if err := q.exec(); err != nil {
		return err
	}
	t.group.count(queue, job.Cancelled, 1)
	if reason == nil {
		return nil
	}
	return t.setError(seq, reason)
}
