package sqlite

import (
	"context"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// inlineInput is the largest input, in bytes, that lives in its run's row.
// Claim and settle rewrite the row, so a larger one is kept apart, for one more
// insert and lookup.
const inlineInput = 1 << 10

// announce is how far ahead, in ms, a delayed run still wakes workers at once:
// they would otherwise find it when their poll comes round.
const announce = 1000

var (
	qInsertRun     = named("insert_run")
	qInsertPayload = named("insert_payload")
	qFindHolder    = named("find_holder")
	qFindState     = named("find_state")
)

// Enqueue implements store.Enqueuer.
func (s *Store) Enqueue(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	return s.EnqueueIf(ctx, batch, nil)
}

// EnqueueIf implements store.Enqueuer.
func (s *Store) EnqueueIf(ctx context.Context, batch []store.EnqueueParams, accept func([]store.EnqueueResult) error) ([]store.EnqueueResult, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	if err := store.CheckIDs(batch); err != nil {
		return nil, err
	}
	var out []store.EnqueueResult
	err := s.w.do(ctx, func(tx *tx) (err error) {
		if out, err = tx.enqueue(batch); err == nil && accept != nil {
			err = accept(out)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// enqueue inserts a batch whose ids have been checked.
func (t *tx) enqueue(batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	out := make([]store.EnqueueResult, len(batch))
	for i := range batch {
		var err error
		if out[i], err = t.enqueueOne(&batch[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (t *tx) enqueueOne(p *store.EnqueueParams) (store.EnqueueResult, error) {
	id, _ := parseUUID(p.ID)
	runAt := toMS(p.RunAt)
	if p.RunAt.IsZero() {
		runAt = t.now + p.Delay.Milliseconds()
	}
	state := job.Ready
	if runAt > t.now {
		state = job.Delayed
	}
	text, at := string(state), ""
	if p.Gate != "" && state == job.Ready {
		// Behind others that wait, out of the way of claims from the start.
		waits, err := t.waits(p.Gate, p.Queue)
		if err != nil {
			return store.EnqueueResult{}, err
		}
		if waits {
			text, at = stateBlocked, p.Gate
		}
	}
	q := t.use(qInsertRun)
	q.blob(id[:])
	q.text(p.Job)
	q.text(p.Queue)
	q.text(p.Tenant)
	q.text(p.Key)
	q.text(text)
	q.int(int64(p.Priority))
	q.int(int64(p.MaxAttempts))
	q.int(runAt)
	q.int(t.now)
	if parent, ok := parseUUID(p.Parent); ok {
		q.blob(parent[:])
	} else {
		q.null()
	}
	q.text(p.EnqueuedBy)
	q.text(p.Traceparent)
	apart := len(p.Input) > inlineInput
	if apart {
		q.null()
	} else {
		q.blob(p.Input)
	}
	q.textOrNull(p.Gate)
	q.textOrNull(at)
	if err := q.exec(); err != nil {
		return store.EnqueueResult{}, err
	}
	if t.db.Changes() == 0 {
		return t.holder(id, p)
	}
	if apart {
		q := t.use(qInsertPayload)
		q.int(t.db.LastInsertRowID())
		q.blob(p.Input)
		if err := q.exec(); err != nil {
			return store.EnqueueResult{}, err
		}
	}
	if runAt <= t.now+announce && at == "" {
		t.group.wake(p.Queue)
	}
	return store.EnqueueResult{ID: p.ID, State: state}, nil
}

// holder answers which run a refused insert stands for. A taken id goes before a
// taken key: the same id again is the same run again, whatever its state.
func (t *tx) holder(id uuid, p *store.EnqueueParams) (store.EnqueueResult, error) {
	q := t.use(qFindState)
	q.blob(id[:])
	if q.step() {
		state := q.colText(0)
		if err := q.end(); err != nil {
			return store.EnqueueResult{}, err
		}
		st, err := parseState(state)
		if err != nil {
			return store.EnqueueResult{}, errRowStatus("runs", "state", state, p.ID)
		}
		return store.EnqueueResult{ID: p.ID, Deduped: true, State: st}, nil
	}
	if err := q.end(); err != nil {
		return store.EnqueueResult{}, err
	}
	holder, state, err := t.findLive(p.Job, p.Tenant, p.Key)
	if err != nil {
		return store.EnqueueResult{}, err
	}
	if holder == "" {
		// One transaction refused the insert and found nobody: the index and the
		// lookup disagree. No id is made up for it.
		return store.EnqueueResult{}, &abi.Error{
			Code:    job.CodeDatabaseCorrupt,
			Message: "run " + p.ID + " was refused as a duplicate of no run: the index runs_key is damaged",
			Fix:     "stop the runner and run `REINDEX runs_key` on the database",
		}
	}
	return store.EnqueueResult{ID: holder, Deduped: true, State: state}, nil
}

// FindLive implements store.Enqueuer.
func (s *Store) FindLive(ctx context.Context, jobName, tenant, key string) (id string, err error) {
	err = s.read(ctx, func(c *conn) (err error) {
		id, _, err = c.findLive(jobName, tenant, key)
		return err
	})
	return id, err
}

func (c *conn) findLive(jobName, tenant, key string) (id string, state job.State, err error) {
	if key == "" {
		return "", "", nil
	}
	q := c.use(qFindHolder)
	q.text(jobName)
	q.text(tenant)
	q.text(key)
	if q.step() {
		id, state = formatUUID(q.s.ColumnRawBlob(0)), seenState(q.colText(1))
	}
	return id, state, q.end()
}
