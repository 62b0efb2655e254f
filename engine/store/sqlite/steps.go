package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qListSteps  = named("list_steps")
	qUnwindOf   = named("unwind_of")
	qUpsertStep = named("upsert_step")
	qSetSteps   = named("set_steps")
)

// ListSteps implements store.Steps.
func (s *Store) ListSteps(ctx context.Context, runID string) ([]job.Step, error) {
	id, ok := parseUUID(runID)
	if !ok {
		return nil, nil
	}
	var out []job.Step
	err := s.read(ctx, func(c *conn) error {
		out = nil
		q := c.use(qListSteps)
		q.blob(id[:])
		for q.step() {
			st, err := scanStep(&q, runID)
			if err != nil {
				q.end()
				return err
			}
			out = append(out, st)
		}
		return q.end()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Unwinds implements store.Steps.
func (s *Store) Unwinds(ctx context.Context, runIDs []string) (map[string]job.Unwind, error) {
	out := map[string]job.Unwind{}
	err := s.read(ctx, func(c *conn) error {
		clear(out)
		for _, runID := range runIDs {
			id, ok := parseUUID(runID)
			if !ok {
				continue
			}
			q := c.use(qUnwindOf)
			q.blob(id[:])
			var output []byte
			if q.step() {
				output = q.colBlob(0)
			}
			if err := q.end(); err != nil {
				return err
			}
			if output == nil {
				continue
			}
			u, err := job.ParseUnwind(output)
			if err != nil {
				return err
			}
			out[runID] = u
		}
		return nil
	})
	return out, err
}

func scanStep(q *call, runID string) (job.Step, error) {
	text := q.colText(3)
	status, err := job.ParseStepStatus(text)
	if err != nil {
		return job.Step{}, errRowStatus("steps", "status", text, runID)
	}
	return job.Step{
		Name: q.colText(0), Seq: int(q.colInt(1)), Kind: job.StepKind(q.colText(2)), Status: status,
		Attempts: int(q.colInt(4)), WakeAt: q.colTime(5), StartedAt: q.colTime(6), FinishedAt: q.colTime(7),
		Error: scanFailure(q, 8), Output: q.colBlob(12),
		Topic: q.colText(13), EventKey: q.colText(14), Place: q.colInt(15), Child: formatUUID(q.s.ColumnRawBlob(16)),
	}, nil
}

// SaveSteps implements store.Steps.
func (s *Store) SaveSteps(ctx context.Context, batch []store.StepParams) ([]store.StepResult, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	for i := range batch {
		if err := batch[i].Check(); err != nil {
			return nil, err
		}
	}
	var out []store.StepResult
	err := s.w.do(ctx, func(tx *tx) error {
		out = make([]store.StepResult, len(batch))
		for i := range batch {
			h, ok, err := tx.hold(batch[i].Ref)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if out[i], err = tx.saveStep(&h, &batch[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// saveStep writes one record of a run that is held, and what it enqueues. h is
// kept in step with the row.
func (t *tx) saveStep(h *held, p *store.StepParams) (store.StepResult, error) {
	if p.Wait != nil {
		if out, ok, err := t.ended(h.seq, p.Name); ok || err != nil {
			if err == nil {
				err = t.pin(h, p.Module)
			}
			return out, err
		}
	}
	out := store.StepResult{Landed: true, At: fromMS(t.now)}
	output := p.Output
	if len(p.Enqueue) > 0 || p.OutputEnqueued {
		var err error
		if out.Enqueued, err = t.enqueue(p.Enqueue); err != nil {
			return store.StepResult{}, err
		}
	}
	if len(p.Publish) > 0 {
		if _, err := t.publish(p.Publish); err != nil {
			return store.StepResult{}, err
		}
	}
	if p.OutputEnqueued {
		var err error
		if output, err = p.Named(out.Enqueued); err != nil {
			return store.StepResult{}, err
		}
		out.Output = output
	}
	var wakeAt int64
	if p.Status == job.StepSleeping || p.Wait != nil || !p.WakeAt.IsZero() {
		wakeAt = t.wakeAt(p)
	}
	q := t.use(qUpsertStep)
	q.int(h.seq)
	q.text(p.Name)
	q.int(h.steps + 1)
	q.text(string(p.Kind))
	q.text(string(p.Status))
	q.int(int64(p.Attempts))
	q.ms(wakeAt)
	q.int(t.now - max(p.Elapsed.Milliseconds(), 0))
	q.int(t.now)
	bindFailure(&q, p.Error)
	q.blob(output)
	var seq int64
	if q.step() {
		seq = q.colInt(0)
	}
	if err := q.end(); err != nil {
		return store.StepResult{}, err
	}
	if p.Wait != nil {
		if err := t.wait(h.seq, p, &out); err != nil {
			return store.StepResult{}, err
		}
	}
	if seq <= h.steps {
		return out, t.pin(h, p.Module)
	}
	h.steps = seq
	if p.Module != "" {
		h.module = p.Module
	}
	q = t.use(qSetSteps)
	q.int(h.seq)
	q.int(h.steps)
	q.text(h.module)
	return out, q.exec()
}

// wakeAt is when a sleeping step ends, or the time of a wait is over.
func (t *tx) wakeAt(p *store.StepParams) int64 {
	if !p.WakeAt.IsZero() {
		return toMS(p.WakeAt)
	}
	return t.now + max(p.Sleep.Milliseconds(), 0)
}
