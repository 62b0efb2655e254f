package sqlite

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qRecordFirstAttempt = named("record_first_attempt")
	qRequeueRun         = named("requeue_run")
	qStepSeq            = named("step_seq")
	qDeleteStepsFrom    = named("delete_steps_from")
	qLeftToUndo         = named("left_to_undo")
	qResumeUnwind       = named("resume_unwind")
)

// Requeue implements store.Admin.
func (s *Store) Requeue(ctx context.Context, p store.RequeueParams) (job.Run, error) {
	if err := p.Check(); err != nil {
		return job.Run{}, err
	}
	var out job.Run
	err := s.w.do(ctx, func(tx *tx) error {
		r, seq, err := tx.get(p.ID)
		if err != nil {
			return err
		}
		resumed, err := tx.requeueable(&r, seq, p)
		if err != nil {
			return err
		}
		from := int64(0)
		if p.FromStep != "" {
			if from, err = tx.stepSeq(&r, seq, p.FromStep); err != nil {
				return err
			}
		}
		// Nothing is refused from here on.
		record := tx.use(qRecordFirstAttempt)
		record.int(seq)
		if err := record.exec(); err != nil {
			return err
		}
		if from > 0 {
			q := tx.use(qDeleteStepsFrom)
			q.int(seq)
			q.int(from)
			if err := q.exec(); err != nil {
				return err
			}
			r.Steps = int(from - 1)
		}
		ended := r.State
		if p.Attempts > 0 {
			r.MaxAttempts = p.Attempts
		}
		r.State, r.Attempt, r.Orphans, r.RunAt = job.Ready, 0, 0, fromMS(tx.now)
		r.FinishedAt, r.ExpiresAt, r.Output, r.Progress = time.Time{}, time.Time{}, nil, job.Progress{}
		if p.Latest {
			r.Module = ""
		}
		if resumed != nil {
			r.Attempt, r.Error = r.MaxAttempts, resumed.Failure
			if err := tx.resumeUnwind(seq, resumed); err != nil {
				return err
			}
		}
		q := tx.use(qRequeueRun)
		q.int(seq)
		q.int(tx.now)
		q.int(int64(r.MaxAttempts))
		q.int(int64(r.Steps))
		q.int(int64(r.Attempt))
		q.text(r.Module)
		if err := q.exec(); err != nil {
			return err
		}
		tx.group.count(r.Queue, ended, -1)
		tx.group.wake(r.Queue)
		out = r
		return tx.audit(store.AuditEntry{By: p.By, Verb: store.AuditRetry, Kind: store.AuditRun, Subject: r.ID, Detail: p.Detail()})
	})
	if err != nil {
		return job.Run{}, err
	}
	return out, nil
}

// Restart implements store.Admin.
func (s *Store) Restart(ctx context.Context, p store.RestartParams) (store.EnqueueResult, error) {
	batch := []store.EnqueueParams{p.Run}
	if err := store.CheckIDs(batch); err != nil {
		return store.EnqueueResult{}, err
	}
	var out []store.EnqueueResult
	err := s.w.do(ctx, func(tx *tx) (err error) {
		if out, err = tx.enqueue(batch); err != nil || out[0].Deduped {
			return err
		}
		for _, e := range p.Audit() {
			if err := tx.audit(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return store.EnqueueResult{}, err
	}
	return out[0], nil
}

// requeueable refuses a run that is live, was undone, or whose key another live run
// holds. It answers how the run goes on being undone, or nil.
func (t *tx) requeueable(r *job.Run, seq int64, p store.RequeueParams) (*store.Resumed, error) {
	undo, err := t.toUndo(seq)
	if err != nil {
		return nil, err
	}
	if undo.Unwind != nil {
		q := t.use(qLeftToUndo)
		q.int(seq)
		undo.Left = q.step()
		if err := q.end(); err != nil {
			return nil, err
		}
	}
	resumed, err := p.Resume(r, undo)
	if err != nil {
		return nil, err
	}
	holder, _, err := t.findLive(r.Job, r.Tenant, r.Key)
	if err != nil {
		return nil, err
	}
	if holder != "" {
		return nil, store.KeyHeld(r, holder)
	}
	return resumed, nil
}

// resumeUnwind has a run that stopped half undone go on from there.
func (t *tx) resumeUnwind(seq int64, resumed *store.Resumed) error {
	q := t.use(qResumeUnwind)
	q.int(seq)
	q.blob(resumed.Output)
	if err := q.exec(); err != nil {
		return err
	}
	return t.setError(seq, &resumed.Failure)
}

// stepSeq finds the place of a step in the run's history.
func (t *tx) stepSeq(r *job.Run, seq int64, step string) (int64, error) {
	q := t.use(qStepSeq)
	q.int(seq)
	q.text(step)
	place := int64(0)
	if q.step() {
		place = q.colInt(0)
	}
	if err := q.end(); err != nil {
		return 0, err
	}
	if place == 0 {
		return 0, store.NoStep(r, step)
	}
	return place, nil
}
